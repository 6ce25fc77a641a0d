"""Uploads an exported folder to the Hugging Face Hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cvgnn.errors import CvgnnError, require
from cvgnn.utils.optional_import import import_optional


def push_to_hub(folder: Path, repo_id: str, *, private: bool = True, api: Any = None) -> str:
    """Upload a folder that `cvgnn export` has written, into a repository that is created if need be.

    The token is that of `hf auth login`, or of the environment variable `HF_TOKEN`.

    Args:
        folder: with README.md and model.json.
        repo_id: USER/NAME.
        private: whether a new repository is private.
        api: an `HfApi`; a new one if not given.

    Returns:
        The address of the upload.
    """
    require(
        (folder / "model.json").is_file(), f"{folder} has no model.json; name a folder that cvgnn export has written"
    )
    require(repo_id.count("/") == 1 and all(repo_id.split("/")), f"the repository must be USER/NAME, not {repo_id!r}")
    hub = import_optional("huggingface_hub", extra="hub", purpose="push_to_hub")
    api = api or hub.HfApi(library_name="cvgnn")
    try:
        api.create_repo(repo_id, private=private, exist_ok=True)
        return str(api.upload_folder(repo_id=repo_id, folder_path=folder, commit_message="cvgnn export"))
    except Exception as error:  # of the network, of the service, of the token: the package has many kinds
        raise CvgnnError(f"cannot upload to {repo_id}: {str(error)[:500]}; the folder {folder} is complete") from None
