"""`cvgnn serve`: a finished run over HTTP. Only this package needs the extra `serve`, Starlette and uvicorn."""
