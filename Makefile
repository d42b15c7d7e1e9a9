# Everything a fresh machine with Python 3.11 or later needs: `make demo`, `make install` and `make test`.
PYTHON ?= python3
BIN := .venv/bin

# Python keeps what it compiles, or each of the hundred processes that the tests start would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: docs demo install check test style types fast-tests processors busy coverage dist sbom wheelhouse try-wheelhouse constraints audit curves stubs clean

# Half of all: what the demo, and institutions with tables or images of their own, need. Python compiles what it loads.
.venv/for-demo: pyproject.toml accounting/pyproject.toml src/collegium/version.py
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --no-compile --editable ./accounting --editable '.[torch,serve,excel]'
	touch $@

.venv/installed: pyproject.toml accounting/pyproject.toml bridges/nvflare/pyproject.toml bridges/onnx/pyproject.toml \
		reproduction/pyproject.toml conformance/pyproject.toml \
		src/collegium/version.py
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ./accounting --editable '.[all,dev]' --editable ./conformance \
		--editable ./reproduction --editable ./bridges/nvflare --editable ./bridges/onnx
	touch .venv/for-demo $@

demo: .venv/for-demo
	$(BIN)/collegium demo

install: .venv/installed

# What a contributor runs before every commit: style, types, import rules and the fast tests.
check: .venv/installed
	$(MAKE) --no-print-directory --jobs=2 --output-sync=target style types fast-tests

test: style types
	$(BIN)/python -m pytest

style: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/installed
	$(BIN)/mypy

fast-tests: .venv/installed
	$(BIN)/python -m pytest -n 2 -m "not slow and not bits"

# What computes in floating point, on kinds of processors that the libraries can take this one for.
FLOATING := accounting/tests tests/unit/accounting tests/unit/models tests/unit/sums \
	tests/unit/neighbours/test_features.py tests/unit/neighbours/test_nearest_party.py \
	tests/adversaries/test_networks_of_a_liar.py
KINDS := ATEN_CPU_CAPABILITY=default ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 OPENBLAS_CORETYPE=Haswell

processors: .venv/installed
	@for kind in $(KINDS); do echo "$$kind" && env $$kind $(BIN)/python -m pytest -n 2 -m "not slow" $(FLOATING) || exit 1; done

# The fast tests on a machine that has other things to do.
busy: .venv/installed
	@for loop in 1 2; do sh -c 'while :; do :; done' & loops="$$loops $$!"; done; \
		trap "kill $$loops" EXIT; trap 'exit 130' INT TERM; $(MAKE) --no-print-directory fast-tests

# Which lines no test runs; takes about twice as long as `make test`.
coverage: .venv/installed
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n 2; $(BIN)/coverage combine --quiet; $(BIN)/coverage report

# The documentation as a site, in site/; a broken link or reference is an error.
docs: .venv/installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

# Source archives and wheels of the six distributions, and the hashes of these and of all that they may need.
dist: .venv/installed
	$(BIN)/python .ci/distributions.py

# A bill of materials, CycloneDX 1.6, of the six distributions with every extra, as they are installed here.
sbom: .venv/installed
	$(BIN)/python .ci/bill.py dist/collegium.cdx.json

# The wheels for tables and vectors on a machine without a network, with their bill of materials, in dist/wheelhouse.
wheelhouse: dist
	$(BIN)/python .ci/wheelhouse.py make

try-wheelhouse: .venv/installed
	$(BIN)/python .ci/wheelhouse.py try

# The release and the hashes of every package that a distribution may need, for all platforms and Pythons from 3.11 on.
# It keeps the releases that it holds as long as they fit; `make constraints NEWER=--upgrade` takes the newest ones.
constraints: .venv/installed
	printf '%s\n' './accounting[plot]' '.[all]' ./conformance ./reproduction ./bridges/nvflare ./bridges/onnx build setuptools | \
		$(BIN)/uv pip compile - --quiet --universal --python-version 3.11 --generate-hashes --no-annotate $(NEWER) \
		--no-emit-package collegium-accounting --no-emit-package collegium --no-emit-package collegium-reproduction \
		--no-emit-package collegium-conformance --no-emit-package collegium-nvflare --no-emit-package collegium-onnx --custom-compile-command 'make constraints' --output-file constraints.txt

# Known vulnerabilities of the dependencies; says that nothing was audited where the package index has no advisories.
audit: .venv/installed
	$(BIN)/python .ci/audit.py

# The curves of the exact accountant that come with it: those of the examples on the first pages.
curves: .venv/installed
	$(BIN)/python accounting/tests/kept_curves.py

# The protobuf stubs are kept in the repository; a test checks that this changes nothing.
stubs: .venv/installed
	$(BIN)/python -m grpc_tools.protoc -I src/collegium/protocol/proto --python_out=src --pyi_out=src \
		src/collegium/protocol/proto/collegium/protocol/v1/*.proto

clean:
	rm -rf .venv build dist site src/*.egg-info accounting/src/*.egg-info conformance/*.egg-info reproduction/*.egg-info bridges/*/src/*.egg-info .mypy_cache .ruff_cache .pytest_cache
