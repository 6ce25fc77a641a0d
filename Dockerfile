# cvgnn in a container: CPU build of torch, a user without rights, kernels compiled in the build. See docs/install.md.
#   docker build -t cvgnn .
#   docker run --rm --read-only --tmpfs /tmp -v "$PWD/runs:/runs" cvgnn train --out /runs/a
FROM python:3.11-slim AS build
WORKDIR /src
COPY . .
# --no-compile: the image is read-only, and bytecode would add 100 MB to it.
RUN python -m venv /opt/cvgnn \
 && /opt/cvgnn/bin/pip install --no-cache-dir --no-compile torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu \
 && /opt/cvgnn/bin/pip install --no-cache-dir --no-compile -c constraints.txt . \
 && rm -rf /opt/cvgnn/lib/python3.11/site-packages/torch/test /opt/cvgnn/lib/python3.11/site-packages/torch/include

FROM python:3.11-slim
COPY --from=build /opt/cvgnn /opt/cvgnn
ENV PATH=/opt/cvgnn/bin:$PATH NUMBA_CACHE_DIR=/opt/cvgnn/cache PYTHONDONTWRITEBYTECODE=1
# NUMBA_CACHE_DIR and not CVGNN_HOME, which you may point to a volume for data sets. The kernels belong to root, so
# that the user below can read them and nobody can change them.
RUN cvgnn warmup && useradd --no-create-home --uid 10001 cvgnn
USER 10001
WORKDIR /tmp
ENTRYPOINT ["cvgnn"]
CMD ["--help"]
