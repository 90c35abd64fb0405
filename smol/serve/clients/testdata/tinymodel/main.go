// Command tinymodel writes the tests' tiny model into a directory. It is run
// from the main module, whose package it needs:
//
//	go run smol/serve/clients/testdata/tinymodel/main.go DIR
package main

import (
	"fmt"
	"os"

	"servebench/smol/graph"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "tinymodel: want one argument, the directory")
		os.Exit(2)
	}
	if _, err := graph.WriteTiny(os.Args[1], graph.Options{}); err != nil {
		fmt.Fprintln(os.Stderr, "tinymodel:", err)
		os.Exit(1)
	}
}
