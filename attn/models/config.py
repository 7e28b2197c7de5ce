"""The configuration that chooses a member of the family."""

import dataclasses
from typing import Literal

from attn.configs import ConfigError

_COMPARED = ("dot", "scaled_dot", "cosine", "concat_released")  # Queries and keys of one width.


@dataclasses.dataclass(frozen=True)
class ModelConfig:
  """Sizes and choices of one sequence-to-sequence model; letters are those of Bahdanau 2015.

  What step i does, and in what sequence, is the choice of `order` (`attn/models/steps.py`):

  | order                | score sees | state sees       | readout of  | goes with                |
  |----------------------|------------|------------------|-------------|--------------------------|
  | `bahdanau`           | s_{i-1}    | y_{i-1}, c_i     | s_i         | any cell, score, window  |
  | `bahdanau_appendix`  | s_{i-1}    | y_{i-1}, c_i     | s_{i-1}     | the same                 |
  | `groundhog`          | s_{i-1}    | y_{i-1}, c_{i-1} | s_{i-1}     | the same                 |
  | `luong`              | s_i        | y_{i-1}, fed     | s_i         | these and input feeding  |
  | `conditional_gru`    | s'_i       | y_{i-1}, c_i     | s_i         | one layer of GRUs        |

  In `groundhog` s_{i-1} has seen y_{i-1}: its state is updated with the word once it is known. The
  context enters the state, the readout, both or none (`context`), in `luong` the readout alone.
  Without attention (`score='none'`) c_i is one fixed vector: [forward h_T; backward h_1], or h_T.

  | model                        | choices                                                       |
  |------------------------------|---------------------------------------------------------------|
  | RNNsearch (Bahdanau 2015)    | the defaults                                                  |
  | RNNencdec (its A.2.2)        | score none, encoder forward                                   |
  | fixed vector each step (Cho) | score none, encoder forward, cell gru_cho                     |
  | initial state only           | score none, context none, initial_state all_layers, lstm      |
  | (Sutskever 2014)             |                                                               |
  | Luong 2015                   | order luong, lstm, forward, initial_state all_layers          |

  What has no meaning is refused: a window, split keys or input feeding without attention, input
  feeding outside `luong`, attention whose context nothing reads, states of unequal widths compared,
  a reversed source read both ways, options of a cell, score or window that is not chosen.

  Attributes:
    source_vocabulary: source symbols K_x; None takes the size of the data's vocabulary.
    target_vocabulary: target symbols K_y; None takes the size of the data's vocabulary.
    embedding: width m of the word embeddings.
    units: width n of every recurrent state.
    alignment: width n' of the hidden layer of additive and concat scores and of local-p.
    maxout: width l of the readout; a maxout takes the larger of each two of 2l units.
    encoder: `bidirectional` ([forward; backward] states) or `forward`.
    score: `additive` (Bahdanau), `dot`, `general`, `concat`, `location` (Luong), `concat_released`
      (v tanh(h + W s), the authors' code), `scaled_dot` (Vaswani), `cosine`; `none` gives the
      decoder one fixed vector.
    biases: whether gates, initial state, readout and output layer have biases, which begin at 0.
      The papers' counts leave them out. `groundhog` has those of the authors' code: candidates,
      initial state, readout, embeddings, output layer.
    initialisation: `bahdanau` (appendix B.1: orthogonal recurrence, N(0, 0.001^2) alignment,
      v_a = 0, the rest N(0, 0.01^2)), `sutskever` U(-0.08, 0.08), `luong` U(-0.1, 0.1), or `glorot`
      (orthogonal recurrence, Glorot elsewhere), which learns within minutes where the papers' take
      days.
    dropout: share of embedding and readout units, of what passes from layer to layer and of a fed
      vector that is dropped while training.
    cell: `gru` (Bahdanau: reset before the matmul, z takes the new), `gru_cho` (z keeps the old),
      `gru_cudnn` (z keeps, reset after the matmul) or `lstm`.
    layers: of the encoder, in each direction, and of the decoder.
    forget_bias: added to an LSTM's forget gate.
    peepholes: whether an LSTM's gates see its memory.
    reverse_source: a forward encoder reads the source from its end. Positions, annotations and
      weights stay in the order of the text.
    source_eos: whether the encoder reads the source's EOS, which attention may then weigh.
    order: of the decoding step, see above.
    context: what c_i enters; None is `readout` in `luong` and else `both`, as far as a `state`
      readout lets it.
    input_feeding: what `luong` feeds to the next step: `none`, `readout` (h~, the paper) or
      `context` (c).
    readout: `maxout`, `tanh` or `linear` of U_o s + V_o E y + C_o c, or the `state` itself.
    word_in_readout: whether V_o E y_{i-1} is there; None is no in `luong` and in a `state` readout.
    output_width: None, or the rank of the output matrix, which is then a product of two.
    first_word: what stands before the first word: a symbol of its own (`bos`), or `zeros`.
    initial_state: of the decoder. `projected`: tanh(W_s h) of the backward state at word 1, or of a
      forward encoder's last one; `mean`: tanh(W_s mean h_j); `last`: that same state, as it is, in
      every layer; `all_layers`: each layer's last; `zero`.
    project_summary: the fixed vector is tanh(V h), and `projected` starts from it.
    memory: `shared`, an annotation is key and value; `split`, its halves are.
    window: `global`, `local_m` (around i) or `local_p` (around a predicted position, with a
      Gaussian); content scores then look at the window alone.
    half_width: D of the window.
    renormalise: whether local-p's weights sum to 1 again after the Gaussian; the paper's do not.
    position: local-p's centre, S sigmoid(.) of the `paper` or (S - 1) sigmoid(.) as `released`.
    location_length: source positions that a location score has weights for.
    location_overflow: positions beyond have weight 0 (`drop`; `Memory.overflow` counts them), or
      sources padded to more are refused (`error`).
  """

  source_vocabulary: int | None = None
  target_vocabulary: int | None = None
  embedding: int = 620
  units: int = 1000
  alignment: int = 1000
  maxout: int = 500
  encoder: Literal["bidirectional", "forward"] = "bidirectional"
  score: Literal[
    "additive",
    "none",
    "dot",
    "scaled_dot",
    "cosine",
    "general",
    "concat",
    "concat_released",
    "location",
  ] = "additive"
  biases: bool | Literal["groundhog"] = False
  initialisation: Literal["bahdanau", "glorot", "sutskever", "luong"] = "bahdanau"
  dropout: float = 0.0
  cell: Literal["gru", "gru_cho", "gru_cudnn", "lstm"] = "gru"
  layers: int = 1
  forget_bias: float = 0.0
  peepholes: bool = False
  reverse_source: bool = False
  source_eos: bool = True
  order: Literal["bahdanau", "bahdanau_appendix", "groundhog", "luong", "conditional_gru"] = (
    "bahdanau"
  )
  context: Literal["state", "readout", "both", "none"] | None = None
  input_feeding: Literal["none", "readout", "context"] = "none"
  readout: Literal["maxout", "tanh", "linear", "state"] = "maxout"
  word_in_readout: bool | None = None
  output_width: int | None = None
  first_word: Literal["bos", "zeros"] = "bos"
  initial_state: Literal["projected", "mean", "last", "all_layers", "zero"] = "projected"
  project_summary: bool = False
  memory: Literal["shared", "split"] = "shared"
  window: Literal["global", "local_m", "local_p"] = "global"
  half_width: int = 10
  renormalise: bool = False
  position: Literal["paper", "released"] = "paper"
  location_length: int = 50
  location_overflow: Literal["drop", "error"] = "drop"

  def __post_init__(self) -> None:
    """Raises ConfigError for a size that cannot be, or choices that mean nothing together."""
    for name in ("embedding", "units", "alignment", "maxout", "layers", "location_length"):
      if getattr(self, name) < 1:
        raise ConfigError(f"{name} is {getattr(self, name)}; it must be at least 1")
    if self.output_width is not None and self.output_width < 1:
      raise ConfigError(f"output_width is {self.output_width}; it must be at least 1, or none")
    if self.half_width < 0:
      raise ConfigError(f"half_width is {self.half_width}; it must not be negative")
    if not 0.0 <= self.dropout < 1.0:
      raise ConfigError(f"dropout is {self.dropout}; it must be in [0, 1)")
    for wrong, told in (*self._meaningless_encoder(), *self._meaningless_decoder()):
      if wrong:
        raise ConfigError(told)

  def _meaningless_encoder(self) -> tuple[tuple[bool, str], ...]:
    both_ways, lstm = self.encoder == "bidirectional", self.cell == "lstm"
    return (
      (
        not lstm and (self.peepholes or self.forget_bias != 0.0),
        f"peepholes and forget_bias belong to an LSTM: leave them out, or cell={self.cell!r}",
      ),
      (
        lstm and self.biases == "groundhog",
        "biases='groundhog' are those of gated units: set true or false for cell='lstm'",
      ),
      (
        both_ways and self.reverse_source,
        "reverse_source has no meaning for an encoder that reads both ways: set encoder=forward",
      ),
      (
        both_ways and self.initial_state == "all_layers",
        "initial_state='all_layers' wants an encoder of the decoder's widths: set encoder=forward",
      ),
      (
        self.memory == "split" and self.annotation % 2 == 1,
        f"memory='split' halves an annotation, and {self.annotation} is odd: set even units",
      ),
      (
        self.project_summary and self.attends,
        "project_summary is of the fixed vector, which a model with attention does not read",
      ),
    )

  def _meaningless_decoder(self) -> tuple[tuple[bool, str], ...]:
    context, order = self.context_in, self.order
    in_state = context in ("state", "both")
    unread = context == "none" and self.input_feeding != "context"
    options = (
      ("memory='split'", self.memory == "split"),
      (f"window={self.window!r}", self.window != "global"),
      (f"input_feeding={self.input_feeding!r}", self.input_feeding != "none"),
    )
    unattended = " and ".join(told for told, chosen in options if chosen)
    return (
      (not self.attends and bool(unattended), f"{unattended} without attention: set another score"),
      (
        order != "luong" and self.input_feeding != "none",
        f"input_feeding belongs to order='luong': set it, or input_feeding=none for {order!r}",
      ),
      (
        order == "luong" and in_state,
        f"context={context!r}: in order='luong' the context enters the readout alone; what goes to"
        " the next state is input_feeding",
      ),
      (
        order == "conditional_gru" and self.cell == "lstm",
        "order='conditional_gru' is made of GRUs: set cell=gru, gru_cho or gru_cudnn",
      ),
      (
        order == "conditional_gru" and self.layers > 1,
        f"order='conditional_gru' has one layer, not {self.layers}",
      ),
      (
        order == "conditional_gru" and not in_state,
        f"context={context!r}: the second GRU of order='conditional_gru' reads it; set state or"
        " both",
      ),
      (
        self.readout == "state"
        and (context in ("readout", "both") or self.word_in_readout is True),
        "readout='state' is the state alone: set context=state or none, and no word_in_readout",
      ),
      (
        self.attends and unread,
        "attention whose context nothing reads: set context, or score=none",
      ),
      (
        self.score in _COMPARED and self.key_width != self.units,
        f"score={self.score!r} compares states of {self.units} units with keys of {self.key_width}:"
        " set score=general, or encoder=forward",
      ),
      (
        self.window != "local_p" and (self.renormalise or self.position != "paper"),
        "renormalise and position belong to window='local_p'",
      ),
      (
        self.score != "location" and self.location_overflow != "drop",
        "location_overflow belongs to score='location'",
      ),
    )

  @property
  def annotation(self) -> int:
    """Width of an annotation h_j: 2n for the bidirectional encoder, else n."""
    return 2 * self.units if self.encoder == "bidirectional" else self.units

  @property
  def key_width(self) -> int:
    """Width of what a score compares with, and of a context."""
    return self.annotation // 2 if self.memory == "split" else self.annotation

  @property
  def attends(self) -> bool:
    """Whether the decoder has attention."""
    return self.score != "none"

  @property
  def blocks(self) -> int:
    """Pre-activations of the cell, in units."""
    return 4 if self.cell == "lstm" else 3

  @property
  def context_in(self) -> str:
    """What the context enters: `state`, `readout`, `both` or `none`."""
    if self.context is not None:
      return self.context
    if self.order == "luong":
      return "none" if self.readout == "state" else "readout"
    return "state" if self.readout == "state" else "both"

  @property
  def reads_word(self) -> bool:
    """Whether the previous word enters the readout."""
    if self.word_in_readout is not None:
      return self.word_in_readout
    return self.order != "luong" and self.readout != "state"
