"""From a data set's name to the folder with its raw files: a user's own, the cache's, or upstream's downloaded."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path

from cvgnn.datasets.archive import BadArchiveError, extract
from cvgnn.datasets.catalog import Dataset, Download
from cvgnn.datasets.download import DownloadError, Policy, download
from cvgnn.datasets.home import cache_folder, offline
from cvgnn.errors import CvgnnError, require
from cvgnn.locking import locked

POLICY = Policy()


def raw_folder(dataset: Dataset, root: Path | None) -> Path:
    """The folder below which `dataset.files` lie.

    Args:
        dataset: what is wanted.
        root: a user's folder, in which nothing is written; None for the cache folder, into which missing files are
            downloaded unless `CVGNN_OFFLINE` is set.
    """
    if root is not None:
        folder = find(dataset, root)
        if folder is None:
            require(
                not root.is_dir() or os.access(root, os.R_OK | os.X_OK),
                f"cannot look into the folder {root}; check its permissions",
            )
            tried = ", ".join(str(root / place) for place in dataset.places)
            raise CvgnnError(
                f"no raw files of {dataset.name!r}: {dataset.edges_file} is in none of {tried}; "
                f"put {', '.join(dataset.files)} into one of these folders"
            )
        return folder
    home = cache_folder() / dataset.name
    folder = find(dataset, home)
    if folder is None or missing(dataset, folder):
        _obtain(dataset, home / "raw")
        folder = home / "raw" / dataset.inner
    return folder


def find(dataset: Dataset, root: Path) -> Path | None:
    """The likely sub-folder of `root` that has most of the raw files; None if none has any."""
    folders = [root / place for place in dataset.places]
    best = min(folders, key=lambda folder: len(missing(dataset, folder)))  # the first of equals
    return best if len(missing(dataset, best)) < len(dataset.files) else None


def missing(dataset: Dataset, folder: Path) -> list[str]:
    """The raw files that `folder` lacks."""
    return [file for file in dataset.files if not os.path.isfile(folder / file)]


def status(dataset: Dataset, root: Path | None) -> tuple[str, int]:
    """Whether a data set is here, in a word, and its size on disk in bytes; nothing is downloaded.

    Args:
        dataset: what is looked for.
        root: a user's folder; None for the cache folder, all of which is counted: what was parsed and what is under
            way too.
    """
    home = cache_folder() / dataset.name if root is None else root
    folder = find(dataset, home)
    if root is None:
        size = _size(home)
    else:
        present = [] if folder is None else [folder / file for file in dataset.files]
        size = sum(os.path.getsize(path) for path in present if os.path.isfile(path))
    if dataset.bundled and root is None:
        bundled = resources.files("cvgnn.datasets") / "data" / f"{dataset.name}.npz"
        return "bundled", size + len(bundled.read_bytes())
    if folder is None:
        return "no", size
    return ("in part" if missing(dataset, folder) else "yes"), size


def synthetic_status(name: str, root: Path | None) -> tuple[str, int]:
    """The same for a synthetic graph, of which a folder `NAME-v...` is a store.

    Args:
        name: of the preset.
        root: where stores are; None for the cache folder.
    """
    stores = [folder for folder in (root or cache_folder()).glob(f"{name}-v*") if folder.is_dir()]
    return ("yes" if stores else "no"), sum(map(_size, stores))


def _size(folder: Path) -> int:
    return sum(os.path.getsize(path) for path in folder.rglob("*") if os.path.isfile(path))


def _obtain(dataset: Dataset, folder: Path) -> None:
    """Fill the cache's raw folder: take what the user put there, unpack what is packed, download the rest."""
    needed = _needed(dataset, folder)
    absent = [item for item in needed if not os.path.isfile(folder / item.file)]
    if absent and offline():
        raise CvgnnError(
            f"dataset {dataset.name!r} is not bundled and CVGNN_OFFLINE=1 forbids downloading it; "
            f"{by_hand(dataset, folder, absent)}"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / ".lock") as exclusive:
            for item in _needed(dataset, folder):  # again: another process may have been here while we waited
                _fetch(dataset, item, folder, exclusive)
    except OSError as error:
        raise CvgnnError(
            f"cannot write to the cache folder {folder}: {error.strerror or error}; set CVGNN_HOME to another folder"
        ) from error


def _needed(dataset: Dataset, folder: Path) -> list[Download]:
    lacking = missing(dataset, folder / dataset.inner)
    return [item for item in dataset.downloads if item.file in lacking or (item.archive and lacking)]


def _fetch(dataset: Dataset, item: Download, folder: Path, exclusive: bool) -> None:
    target = folder / item.file
    by_us = not os.path.isfile(target)
    if by_us:
        try:
            download(item.url, target, max_bytes=item.max_bytes, sha256=item.sha256, policy=POLICY, exclusive=exclusive)
        except DownloadError as error:
            absent = [other for other in _needed(dataset, folder) if not os.path.isfile(folder / other.file)]
            raise CvgnnError(
                f"dataset {dataset.name!r} could not be downloaded: {item.url}: {error}; "
                f"{by_hand(dataset, folder, absent)}"
            ) from error
    if item.archive:
        members = [f"{dataset.inner}/{file}" if dataset.inner else file for file in dataset.files]
        try:
            extract(target, folder, members, max_bytes=dataset.max_file_bytes)
        except BadArchiveError:
            if by_us:
                target.unlink()
            raise
        if by_us:  # an archive that the user put there stays
            target.unlink()


def by_hand(dataset: Dataset, folder: Path, items: list[Download]) -> str:
    """How a user can put files where they are found: URLs, names, folder.

    Args:
        dataset: whose files they are.
        folder: where they belong.
        items: what is to be fetched.
    """
    base = items[0].url.removesuffix(items[0].file)
    if len(items) > 1 and all(item.url == base + item.file for item in items):
        what = f"{', '.join(item.file for item in items)} from {base}"
    else:
        what = ", ".join(f"{item.file} from {item.url}" for item in items)
    if items[0].archive:
        inner = f"{dataset.inner}/" if dataset.inner else ""
        what += f" (as it is, or unpacked: {', '.join(inner + file for file in dataset.files)})"
    return (
        f"fetch by hand {what}, and put it into {folder}, or give the folder that has the files as root "
        "(--root on the command line)"
    )
