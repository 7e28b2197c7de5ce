"""Translation data sets of TFDS's own: found by name, read where they lie, refused in one line."""

import json
import os
import shutil
import struct
import sys
import zipfile

import pytest
import tensorflow_datasets as tfds
from array_record.python.array_record_data_source import ArrayRecordDataSource

from attn.data import catalog, tfds_sets
from attn.data.errors import DataError

NAME = "toy_translate/de-en"
PAIRS = [(f"ein Satz {i}", f"a sentence {i}") for i in range(300)]


class ToyTranslate(tfds.core.GeneratorBasedBuilder):
  """As TFDS's own are: two languages, `validation`, and here no `test`."""

  VERSION = tfds.core.Version("1.2.0")
  BUILDER_CONFIGS = [tfds.core.BuilderConfig(name="de-en"), tfds.core.BuilderConfig(name="fr-en")]

  def _info(self):
    languages = self.builder_config.name.split("-")
    return tfds.core.DatasetInfo(
      builder=self,
      features=tfds.features.Translation(languages=languages),
      supervised_keys=tuple(languages),
    )

  def _split_generators(self, dl_manager):
    return {
      "train": self._generate_examples(PAIRS),
      "validation": self._generate_examples(PAIRS[:7]),
    }

  def _generate_examples(self, pairs):
    for i, (source, target) in enumerate(pairs):
      yield i, dict(zip(self.builder_config.name.split("-"), (source, target), strict=True))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
  """A data directory in which TFDS has prepared the toy."""
  folder = tmp_path_factory.mktemp("tfds")
  ToyTranslate(config="de-en", data_dir=folder, file_format="array_record").download_and_prepare()
  return folder


def _as_tfrecord(folder):
  """Writes the records anew in TFDS's default format, by hand: TensorFlow would have to."""
  for path in folder.glob("*.array_record*"):
    source = ArrayRecordDataSource(str(path))
    records = source.__getitems__(range(len(source)))
    with open(str(path).replace("array_record", "tfrecord"), "wb") as file:
      for record in records:
        file.write(struct.pack("<QI", len(record), 0) + record + struct.pack("<I", 0))
    path.unlink()
  info = json.loads((folder / "dataset_info.json").read_text().replace("ARRAY_RECORD", "TFRECORD"))
  info["fileFormat"] = "tfrecord"
  for split in info["splits"]:
    split["filepathTemplate"] = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
  (folder / "dataset_info.json").write_text(json.dumps(info))


@pytest.mark.parametrize("stored", ["array_record", "tfrecord"])
def test_a_prepared_folder_is_read_in_either_format(prepared, tmp_path, stored):
  shutil.copytree(prepared / "toy_translate", tmp_path / "toy_translate")
  folder = tmp_path / "toy_translate" / "de-en" / "1.2.0"
  if stored == "tfrecord":
    _as_tfrecord(folder)
  assert catalog.prepare(NAME, tmp_path) == folder
  dev = catalog.load(NAME, "dev", tmp_path)
  assert sorted(zip(dev.sources, dev.targets, strict=True)) == sorted(PAIRS[:7])
  assert catalog.load(NAME, "dev", tmp_path, limit=3).sources == dev.sources[:3]
  # There is no test: a hash takes it off the training pairs.
  train, test = (catalog.load(NAME, split, tmp_path) for split in ("train", "test"))
  pairs = [sorted(zip(part.sources, part.targets, strict=True)) for part in (train, test)]
  assert 5 < len(test) < 30
  assert sorted(sum(pairs, [])) == sorted(PAIRS)
  assert catalog.load(NAME, "train", tmp_path, limit=5).sources == train.sources[:5]
  assert "tensorflow" not in sys.modules


def test_the_newest_version_is_taken(prepared, tmp_path):
  for version in ("1.2.0", "1.10.0"):
    shutil.copytree(prepared / NAME / "1.2.0", tmp_path / NAME / version)
    info = json.loads((tmp_path / NAME / version / "dataset_info.json").read_text())
    info["version"] = version
    (tmp_path / NAME / version / "dataset_info.json").write_text(json.dumps(info))
  assert catalog.prepare(NAME, tmp_path) == tmp_path / NAME / "1.10.0"


def test_damage_is_named(prepared, tmp_path):
  shutil.copytree(prepared / "toy_translate", tmp_path / "toy_translate")
  folder = tmp_path / NAME / "1.2.0"
  _as_tfrecord(folder)
  (path,) = folder.glob("*validation*")
  os.truncate(path, path.stat().st_size - 9)
  with pytest.raises(DataError, match="ends inside a record.*delete that folder"):
    catalog.load(NAME, "dev", tmp_path)
  (folder / "dataset_info.json").write_text("{")
  with pytest.raises(DataError, match="cannot be read .*; delete that folder"):
    catalog.load(NAME, "dev", tmp_path)


def test_names_are_those_of_tfds_with_a_configuration():
  assert catalog.levels("wmt14_translate/de-en") == ("bpe", "bpe")
  with pytest.raises(DataError, match=r"not 'wmt14_translate/de-eb' \(did you mean 'de-en'"):
    catalog.levels("wmt14_translate/de-eb")
  with pytest.raises(DataError, match=r"as wmt14_translate/NAME, .*\(known: cs-en, de-en, fr-en"):
    catalog.levels("wmt14_translate")
  for name in ("wmt14/de-en", "no such/thing"):
    with pytest.raises(DataError, match=f"^there is no data set '{name}'"):
      catalog.levels(name)


def test_what_has_no_pairs_of_texts_is_refused_before_it_is_downloaded(tmp_path):
  with pytest.raises(DataError, match="^mnist is no translation data set"):
    catalog.prepare("mnist", tmp_path)


def test_without_a_network_the_host_and_the_way_round_are_named(tmp_path, monkeypatch, capfd):
  for name in ("http_proxy", "https_proxy"):
    monkeypatch.setenv(name, "http://127.0.0.1:9")
  with pytest.raises(DataError) as caught:
    catalog.prepare("ted_hrlr_translate/pt_to_en", tmp_path)
  assert str(caught.value) == (
    "cannot download ted_hrlr_translate/pt_to_en (www.phontron.com cannot be reached); prepare it"
    f" where that works, and put the folder ted_hrlr_translate into {tmp_path}"
  )
  assert capfd.readouterr() == ("", "")


def test_another_tfds_is_not_trusted_without_tensorflow(tmp_path, monkeypatch):
  monkeypatch.setattr(tfds_sets.importlib.metadata, "version", lambda name: "5.0.0")
  with pytest.raises(DataError, match=r"tensorflow-datasets 5.0.0 downloads only with TensorFlow"):
    catalog.prepare("ted_hrlr_translate/pt_to_en", tmp_path)


def test_tfds_unpacks_without_tensorflow(tmp_path):
  archive = tmp_path / "archive.zip"
  with zipfile.ZipFile(archive, "w") as file:
    file.writestr("folder/text", "größer\n")
  with tfds_sets._standing_in(), tfds_sets.quiet():
    manager = tfds.download.DownloadManager(download_dir=tmp_path / "downloads")
    folder = manager.extract(archive)
  assert (folder / "folder" / "text").read_text(encoding="utf-8") == "größer\n"
