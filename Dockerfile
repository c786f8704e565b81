# fglbench in a container, installed as `make install` does it.
#
#   docker build -t fglbench .                                   torch for CPUs
#   docker build -t fglbench:cuda --build-arg WHEELS= .          torch as the package index has it, with CUDA
#   docker run --rm -v "$PWD/runs:/fglbench/runs" -v fglbench-data:/data fglbench run --quick --results runs/quick
#
# Arguments: PYTHON (3.10, 3.11 or 3.12), TORCH (as for make), WHEELS (an index of torch wheels, searched beside the
# package index; empty: none).
ARG PYTHON=3.11
FROM python:${PYTHON}-slim

# git: rows carry the commit that they were made at. libgomp1: DGL is linked against it.
RUN apt-get update && apt-get install -y --no-install-recommends git libgomp1 make && rm -rf /var/lib/apt/lists/*

WORKDIR /fglbench
COPY . .
ARG TORCH=torch==2.13.0
ARG WHEELS=https://download.pytorch.org/whl/cpu
RUN PIP_NO_CACHE_DIR=1 make install PYTHON=python "TORCH=${TORCH}" "CPU_WHEELS=${WHEELS}"

ENV FGLBENCH_CACHE=/data DGLBACKEND=pytorch
VOLUME /data
ENTRYPOINT ["/fglbench/.venv/bin/fglbench"]
CMD ["--help"]
