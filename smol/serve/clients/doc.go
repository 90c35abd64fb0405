// Package clients holds smol/serve against clients that others wrote: the
// official openai-go, curl, and the official Python package. Each asks the
// same questions and has to come back with the same answers, errors and
// leavings, those that it gets from other servers where they are recorded.
//
// It has nothing but tests, and is a module of its own so that the main one
// doesn't depend on what it tests with. It starts the server as a process and
// talks HTTP to it. From the repository's root, after the set-up:
//
//	go -C smol/serve/clients test -v ./...
//
// openai-go is pinned in go.mod. A client that the machine lacks is skipped
// by name, with how to get it; -need curl,python makes that a failure. The
// Python package is looked for with the interpreter that SERVEBENCH_PYTHON
// names, else with python3; requirements.txt pins it:
//
//	python3 -m venv "$HOME/.venvs/servebench-clients"
//	"$HOME/.venvs/servebench-clients/bin/pip" install -r smol/serve/clients/requirements.txt
//	SERVEBENCH_PYTHON="$HOME/.venvs/servebench-clients/bin/python" go -C smol/serve/clients test -v ./... -need curl,python
//
// The server has the model that the set-up put in place, or the tiny,
// untrained one where there is none and with -model tiny, which takes seconds
// but says nothing about what is answered.
package clients
