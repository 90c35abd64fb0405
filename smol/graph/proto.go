package graph

import (
	"encoding/binary"
	"math"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// What follows encodes the few messages of onnx.proto that the graph needs,
// field by field. The numbers are those of the ONNX specification, whose wire
// format is frozen.

// ONNX's element types.
const (
	onnxFloat = 1
	onnxInt32 = 6
	onnxInt64 = 7
)

// ONNX's attribute types.
const (
	attrFloat = 1
	attrInt   = 2
)

func appendString(b []byte, field protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}

func appendMessage(b []byte, field protowire.Number, m []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), m)
}

func appendInt(b []byte, field protowire.Number, v int64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), uint64(v))
}

// modelProto wraps a graph: IR version 10, ONNX's opset 18 and version 1 of
// the com.microsoft domain.
func modelProto(graph []byte) []byte {
	opset := func(domain string, version int64) []byte {
		return appendInt(appendString(nil, 1, domain), 2, version)
	}
	b := appendInt(nil, 1, 10)             // ir_version
	b = appendString(b, 2, "servebench")   // producer_name
	b = appendMessage(b, 7, graph)         // graph
	b = appendMessage(b, 8, opset("", 18)) // opset_import
	return appendMessage(b, 8, opset(microsoft, 1))
}

// attribute is one AttributeProto, encoded.
type attribute []byte

func intAttr(name string, v int64) attribute {
	return appendInt(appendInt(appendString(nil, 1, name), 3, v), 20, attrInt)
}

func floatAttr(name string, v float32) attribute {
	b := protowire.AppendTag(appendString(nil, 1, name), 2, protowire.Fixed32Type)
	return appendInt(protowire.AppendFixed32(b, math.Float32bits(v)), 20, attrFloat)
}

// nodeProto is a node that bears the name of its first output. An empty name
// among inputs or outputs is an optional one left out.
func nodeProto(op, domain string, in, out []string, attrs []attribute) []byte {
	var b []byte
	for _, s := range in {
		b = appendString(b, 1, s)
	}
	for _, s := range out {
		b = appendString(b, 2, s)
	}
	b = appendString(b, 3, out[0])
	b = appendString(b, 4, op)
	for _, a := range attrs {
		b = appendMessage(b, 5, a)
	}
	if domain != "" {
		b = appendString(b, 7, domain)
	}
	return b
}

// tensorHead opens a TensorProto: dimensions, element type, name.
func tensorHead(name string, elem int64, dims []int) []byte {
	var b []byte
	for _, d := range dims {
		b = appendInt(b, 1, int64(d))
	}
	return appendString(appendInt(b, 2, elem), 8, name)
}

// externalProto is a float tensor whose bytes are in the data file.
func externalProto(name string, dims []int, at extent) []byte {
	b := tensorHead(name, onnxFloat, dims)
	for _, kv := range [][2]string{
		{"location", DataFile},
		{"offset", strconv.FormatInt(at.offset, 10)},
		{"length", strconv.FormatInt(at.bytes, 10)},
	} {
		b = appendMessage(b, 13, appendString(appendString(nil, 1, kv[0]), 2, kv[1])) // external_data
	}
	return appendInt(b, 14, 1) // data_location: EXTERNAL
}

// inlineProto is a float tensor of one dimension within the graph.
func inlineProto(name string, values []float32) []byte {
	raw := make([]byte, 0, 4*len(values))
	for _, v := range values {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
	}
	return appendMessage(tensorHead(name, onnxFloat, []int{len(values)}), 9, raw) // raw_data
}

// inlineInt64Proto is an int64 tensor of one dimension within the graph.
func inlineInt64Proto(name string, values ...int64) []byte {
	raw := make([]byte, 0, 8*len(values))
	for _, v := range values {
		raw = binary.LittleEndian.AppendUint64(raw, uint64(v))
	}
	return appendMessage(tensorHead(name, onnxInt64, []int{len(values)}), 9, raw)
}

// valueProto is a ValueInfoProto. A dimension is an int or, where it's known
// only when the graph runs, its name.
func valueProto(name string, elem int64, dims ...any) []byte {
	var shape []byte
	for _, d := range dims {
		switch d := d.(type) {
		case int:
			shape = appendMessage(shape, 1, appendInt(nil, 1, int64(d)))
		case string:
			shape = appendMessage(shape, 1, appendString(nil, 2, d))
		}
	}
	tensor := appendMessage(appendInt(nil, 1, elem), 2, shape)
	return appendMessage(appendString(nil, 1, name), 2, appendMessage(nil, 1, tensor))
}
