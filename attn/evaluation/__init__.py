"""How good hypotheses are: error rates, alignments, intervals, and all of them by length."""
