// Package load puts requests on a server and turns what comes back into
// evidence and metrics. It knows no model: a server is an address that speaks
// the dialect of package sse, a prompt is a text with an id.
//
// It is not a general HTTP load generator, and it judges nothing that package
// verify can't judge again from the file.
//
// A Run is the evidence of one process:
//
//  1. NewRun describes the machine and the code, and opens the file.
//  2. StartServer starts a measured server and waits until it is ready; AddServer
//     records it.
//  3. Benchmark measures one configuration: warmup, passes by closed-loop
//     clients, the server's own log, its memory, the metrics. One printed
//     line, one configuration record.
//     Before the first open loop the client itself is tried against a server
//     that does nothing, and recorded, too. Saturation searches for a rate
//     over many such configurations, and prints one line for all.
//  4. Close writes the trailer and replays the whole file.
package load
