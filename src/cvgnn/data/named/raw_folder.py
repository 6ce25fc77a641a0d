"""The folder that holds the raw files of a data set: a user's folder, or the cache folder, filled by downloads."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from cvgnn.data.named.catalog import DATA_FOLDER, Dataset, Download
from cvgnn.data.named.download import BadArchiveError, DownloadError, RetryPolicy, download, extract
from cvgnn.errors import CvgnnError, require
from cvgnn.utils.cache_folder import cache_folder
from cvgnn.utils.file_lock import lock_file

POLICY = RetryPolicy()


def is_offline(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether `CVGNN_OFFLINE` forbids the network.

    >>> is_offline({"CVGNN_OFFLINE": "1"}), is_offline({"CVGNN_OFFLINE": "0"}), is_offline({})
    (True, False, False)
    """
    return environ.get("CVGNN_OFFLINE", "").strip().lower() not in ("", "0", "false", "no", "off")


def raw_folder(dataset: Dataset, root: Path | None) -> Path:
    """Return the folder that holds `dataset.files`; download the files if needed.

    Args:
        dataset: the data set.
        root: a user's folder, in which nothing is written; None for the cache folder, into which missing files are
            downloaded unless `CVGNN_OFFLINE` is set.
    """
    if root is None:
        home = cache_folder() / dataset.name
        folder = find_folder(dataset, home)
        if folder is not None and not missing_files(dataset, folder):
            return folder
        require(
            bool(dataset.downloads),
            f"dataset {dataset.name!r} is not downloaded by cvgnn; put {', '.join(dataset.files)} into {home / 'raw'}, "
            "or give the folder that has the files as root (--root on the command line)",
        )
        _fill(dataset, home / "raw")
        return home / "raw" / dataset.inner
    folder = find_folder(dataset, root)
    if folder is None:
        readable = not root.is_dir() or os.access(root, os.R_OK | os.X_OK)
        require(readable, f"cannot read the folder {root}; check its permissions")
        raise CvgnnError(
            f"no raw files of {dataset.name!r} in any of {', '.join(str(root / place) for place in dataset.places)}; "
            f"put {', '.join(dataset.files)} into one of these folders"
        )
    return folder


def find_folder(dataset: Dataset, root: Path) -> Path | None:
    """Return the known sub-folder of `root` that has most raw files, the first of equals; None if none has any."""
    best = min((root / place for place in dataset.places), key=lambda folder: len(missing_files(dataset, folder)))
    return best if len(missing_files(dataset, best)) < len(dataset.files) else None


def missing_files(dataset: Dataset, folder: Path) -> list[str]:
    """Return the raw files that are not in `folder`."""
    # os.path.isfile, unlike Path.is_file, takes a folder without read permission as empty.
    return [file for file in dataset.files if not os.path.isfile(folder / file)]


def status(dataset: Dataset, root: Path | None) -> tuple[str, int]:
    """Return "yes", "no", "in part" or "bundled", and the size on disk in bytes. Downloads nothing.

    Args:
        dataset: the data set.
        root: a user's folder, in which only the raw files count; None for the cache folder, in which all files count:
            parsed arrays and partial downloads too.
    """
    folder = find_folder(dataset, cache_folder() / dataset.name if root is None else root)
    if root is not None:
        size = 0 if folder is None else _total_size(folder / file for file in dataset.files)
    else:
        size = _total_size((cache_folder() / dataset.name).rglob("*"))
        if dataset.bundled:
            return "bundled", size + len((DATA_FOLDER / f"{dataset.name}.npz").read_bytes())
    state = "no" if folder is None else "in part" if missing_files(dataset, folder) else "yes"
    return state, size


def synthetic_status(name: str, root: Path | None) -> tuple[str, int]:
    """The same as `status` for a synthetic preset, whose stores are the folders `NAME-v*`.

    Args:
        name: of the preset.
        root: the folder of the stores; None for the cache folder.
    """
    stores = [folder for folder in (root or cache_folder()).glob(f"{name}-v*") if folder.is_dir()]
    return ("yes" if stores else "no"), sum(_total_size(store.rglob("*")) for store in stores)


def _total_size(paths: Iterable[Path]) -> int:
    return sum(os.path.getsize(path) for path in paths if os.path.isfile(path))


def _fill(dataset: Dataset, folder: Path) -> None:
    """Fill the raw folder of the cache: extract archives that are there, download what is missing."""
    if is_offline() and _absent(dataset, folder):
        raise CvgnnError(
            f"dataset {dataset.name!r} is not bundled and CVGNN_OFFLINE=1 forbids downloading it; "
            f"{_instructions(dataset, folder)}"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with lock_file(folder / ".lock", wait=True) as exclusive:
            # Asked again under the lock: another process may have downloaded it in the meantime.
            for item in _needed(dataset, folder):
                _fetch(dataset, item, folder, exclusive)
    except OSError as error:
        raise CvgnnError(
            f"cannot write to the cache folder {folder}: {error.strerror or error}; set CVGNN_HOME to another folder"
        ) from error


def _needed(dataset: Dataset, folder: Path) -> list[Download]:
    """The downloads that contain a missing file."""
    lacking = missing_files(dataset, folder / dataset.inner)
    return [item for item in dataset.downloads if item.file in lacking or (item.is_archive and lacking)]


def _absent(dataset: Dataset, folder: Path) -> list[Download]:
    """The needed downloads that are not in `folder`; an archive may be there, not extracted yet."""
    return [item for item in _needed(dataset, folder) if not os.path.isfile(folder / item.file)]


def _fetch(dataset: Dataset, item: Download, folder: Path, exclusive: bool) -> None:
    target = folder / item.file
    downloaded = not os.path.isfile(target)  # an archive that the user put there is never deleted
    if downloaded:
        try:
            download(item.url, target, max_bytes=item.max_bytes, sha256=item.sha256, policy=POLICY, exclusive=exclusive)
        except DownloadError as error:
            raise CvgnnError(
                f"dataset {dataset.name!r} could not be downloaded: {item.url}: {error}; "
                f"{_instructions(dataset, folder)}"
            ) from error
    if item.is_archive:
        try:
            extract(target, folder, dataset.members, max_bytes=item.max_bytes)
        except BadArchiveError:
            if downloaded:
                target.unlink()
            raise
        if downloaded:
            target.unlink()


def _instructions(dataset: Dataset, folder: Path) -> str:
    """How a user can put the missing files into the cache: URLs, names, folder."""
    items = _absent(dataset, folder)
    base = items[0].url.removesuffix(items[0].file)
    if len(items) > 1 and all(item.url == base + item.file for item in items):
        what = f"{', '.join(item.file for item in items)} from {base}"
    else:
        what = ", ".join(f"{item.file} from {item.url}" for item in items)
    if items[0].is_archive:
        what += f" (as it is, or unpacked: {', '.join(dataset.members)})"
    return (
        f"fetch by hand {what}, and put it into {folder}, or give the folder that has the files as root "
        "(--root on the command line)"
    )
