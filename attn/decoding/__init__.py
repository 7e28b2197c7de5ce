"""Search for the best target sequences of any model that can be written as one step."""

from attn.decoding.beam import beam_search
from attn.decoding.greedy import greedy
from attn.decoding.hypotheses import Hypotheses, Step
from attn.decoding.sampling import sample

__all__ = ["Hypotheses", "Step", "beam_search", "greedy", "sample"]
