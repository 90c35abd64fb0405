package sse

import "servebench/verify"

// Ready is what a measured server writes, as one line of JSON, to the file
// descriptor that -ready-fd names, once it listens and its model is loaded.
// Closing that descriptor without a line means that it failed; the reason is
// the last line of its output.
type Ready struct {
	Addr   string        `json:"addr"`   // host:port
	Server verify.Server `json:"server"` // Kind, Server and ReadyNS left to the reader; Binary too
}
