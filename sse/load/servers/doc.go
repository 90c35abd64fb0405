// Package servers holds the client against servers that others wrote, with
// the same weights in FP32: llama.cpp's server, out of the Python package
// xllamacpp, and Hugging Face's transformers serve. What they stream has to be
// what they say in one piece, their counts must fit, and their greedy answers
// those of testdata/goldens.json.
//
// It has nothing but tests. They start the servers themselves, on free ports
// of the loopback, and leave nothing behind; what the machine lacks is skipped
// by name, and -need llamaserver,transformers makes that a failure. To put all
// of it in place, in the module's root, takes a minute or two (Linux, Python
// 3.11 or later; 2.7 GB are fetched and 5.4 kept, most of it for transformers,
// and each server's tests run without the other):
//
//	dir="$HOME/.cache/servebench-servers" here=sse/load/servers
//	python3 -m venv "$dir/llamaserver" && "$dir/llamaserver/bin/pip" install --no-deps -r $here/llamaserver.txt
//	python3 -m venv "$dir/transformers" && "$dir/transformers/bin/pip" install --no-deps -r $here/transformers.txt
//	"$dir/llamaserver/bin/python" $here/weights.py "$dir/weights"
//
// and then
//
//	export SERVEBENCH_LLAMASERVER_PYTHON="$dir/llamaserver/bin/python"
//	export SERVEBENCH_TRANSFORMERS_PYTHON="$dir/transformers/bin/python"
//	export SERVEBENCH_SERVERS_WEIGHTS="$dir/weights"
//	go test -timeout 30m -v ./sse/load/servers -need llamaserver,transformers
//
// To try the benchmark on one of them by hand, start it in another shell; it
// runs until its input ends (Ctrl-D):
//
//	"$SERVEBENCH_LLAMASERVER_PYTHON" $here/serve.py llamaserver "$dir/weights" 8080
package servers
