"""The configuration that chooses a member of the family."""

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True)
class ModelConfig:
  """Sizes and choices of one sequence-to-sequence model; letters are those of Bahdanau 2015.

  | score      | encoder         | the model                                              |
  |------------|-----------------|--------------------------------------------------------|
  | `additive` | `bidirectional` | RNNsearch: c_i = sum_j alpha_ij h_j                    |
  | `additive` | `forward`       | RNNsearch over a forward encoder, h_j of width n       |
  | `none`     | `forward`       | RNNencdec (appendix A.2.2): c_i = h_T at every step    |
  | `none`     | `bidirectional` | the same with c_i = [forward h_T; backward h_1]        |

  Attributes:
    source_vocabulary: source symbols K_x; None takes the size of the data's vocabulary.
    target_vocabulary: target symbols K_y; None takes the size of the data's vocabulary.
    embedding: width m of the word embeddings.
    units: width n of every recurrent state.
    alignment: width n' of the additive score's hidden layer.
    maxout: width l of the maxout readout (2l units in pairs).
    encoder: `bidirectional` ([forward; backward] states) or `forward`.
    score: `additive` attends; `none` gives the decoder one fixed vector at every step.
    biases: whether gates, initial state, readout and output layer have biases. The paper's
      equations omit them and its parameter count here does too; its appendix B.1 sets them to 0.
    initialisation: `bahdanau` (appendix B.1: orthogonal recurrence, N(0, 0.001^2) alignment,
      v_a = 0, the rest N(0, 0.01^2)) or `glorot` (orthogonal recurrence, Glorot elsewhere), which
      learns within minutes where the paper's takes days.
    dropout: share of embedding and readout units dropped while training.
  """

  source_vocabulary: int | None = None
  target_vocabulary: int | None = None
  embedding: int = 620
  units: int = 1000
  alignment: int = 1000
  maxout: int = 500
  encoder: Literal["bidirectional", "forward"] = "bidirectional"
  score: Literal["additive", "none"] = "additive"
  biases: bool = False
  initialisation: Literal["bahdanau", "glorot"] = "bahdanau"
  dropout: float = 0.0

  def __post_init__(self) -> None:
    """Raises ValueError for a size below 1 or a dropout outside [0, 1)."""
    for name in ("embedding", "units", "alignment", "maxout"):
      if getattr(self, name) < 1:
        raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
    if not 0.0 <= self.dropout < 1.0:
      raise ValueError(f"dropout is {self.dropout}; it must be in [0, 1)")

  @property
  def annotation(self) -> int:
    """Width of an annotation h_j: 2n for the bidirectional encoder, else n."""
    return 2 * self.units if self.encoder == "bidirectional" else self.units
