// Command replay checks evidence and shows what it says. See go run
// ./verify/replay -h.
package main

func main() {}
