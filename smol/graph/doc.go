// Package graph turns published weights of a Llama-shaped model into the
// model directory that the engine loads: an FP32 ONNX graph, its weights
// beside it, a tokenizer and a manifest.
//
// The way of a model through the package:
//
//  1. GGUF and Safetensors read a container. They trust nothing in it: every
//     count, length and offset is held against the file before it is used.
//  2. Weights hands out the tensors one at a time, as float32, under Hugging
//     Face's names and in its layout. Widening and dequantizing are exact in
//     the sense that the value is the one that the format defines.
//  3. Write streams them into model.onnx.data while it builds model.onnx, and
//     closes the directory with model.json, the manifest.
//  4. ReadManifest is the reader's side of the same directory.
//
// Nothing here runs a model, and nothing needs cgo.
package graph
