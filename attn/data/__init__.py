"""Data: TFDS builders of the project's own, vocabularies and the Grain pipeline.

Everything lives in the modules, so that a vocabulary can be had without TFDS or Grain:
`vocabulary`, `config`, `catalog` (what data sets there are, prepared and loaded) and `pipeline`
(batches).
"""
