"""`cvgnn serve`: a finished run over HTTP. Starlette and uvicorn are the extra `serve`; only this package needs them."""
