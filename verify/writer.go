package verify

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"time"
)

// Writer appends records to one new file, each as one line with one write. It
// is safe for concurrent use. After a failed write it takes nothing more: the
// file then ends with its last whole record and has no trailer, which is how
// a reader knows that it is incomplete.
type Writer struct {
	mu      sync.Mutex
	file    *os.File
	hash    hash.Hash
	size    int64
	err     error
	trailer Trailer
}

// Create makes dir if need be and in it the file RUN.jsonl, which must not
// exist, with its header. header.Kind and header.Schema are filled in.
func Create(dir string, header Header) (*Writer, error) {
	if !isBaseName(header.Run) {
		return nil, fmt.Errorf("verify: run %q, want a base name: it names the file", header.Run)
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("verify: evidence directory: %w", err)
	}
	path := filepath.Join(dir, header.Run+".jsonl")
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o666)
	if err != nil {
		return nil, fmt.Errorf("verify: evidence file: %w", err)
	}
	w := &Writer{file: file, hash: sha256.New()}
	header.Kind, header.Schema = KindHeader, Schema
	if err := w.Append(&header); err != nil {
		file.Close()
		os.Remove(path) // it holds nothing yet
		return nil, err
	}
	return w, nil
}

// Path returns the name of the file.
func (w *Writer) Path() string { return w.file.Name() }

// Append writes one record, a pointer to one of this package's types whose
// Kind is set. The error of writing is sticky.
func (w *Writer) Append(record any) error {
	line, err := canonical(record)
	if err != nil {
		return fmt.Errorf("verify: %T: %w", record, err)
	}
	line = append(line, '\n')
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	if err := w.write(line); err != nil {
		return err
	}
	w.trailer.Records++
	switch r := record.(type) {
	case *Request:
		w.trailer.Requests++
		if r.Failure != nil {
			w.trailer.Failed++
		}
		n, _ := r.Tokens()
		w.trailer.Tokens += int64(n)
	case *Configuration:
		w.trailer.Configurations++
		if !r.Valid {
			w.trailer.Invalid++
		}
	}
	return nil
}

// canonical encodes a record in the form that a reader demands. Bytes that are
// no UTF-8, of a directory's name say, become U+FFFD, which encoding/json
// writes as an escape at first and as itself once it has read it.
func canonical(record any) ([]byte, error) {
	line, err := json.Marshal(record)
	if err != nil || !bytes.Contains(line, []byte(`\ufffd`)) {
		return line, err
	}
	again := reflect.New(reflect.TypeOf(record).Elem()).Interface()
	if err := json.Unmarshal(line, again); err != nil {
		return nil, err
	}
	return json.Marshal(again)
}

func (w *Writer) write(line []byte) error {
	if _, err := w.file.Write(line); err != nil {
		w.err = fmt.Errorf("verify: evidence is incomplete, nothing more is recorded: %w", err)
		w.file.Truncate(w.size) // drops half a line; a reader copes where this fails too
		return w.err
	}
	w.size += int64(len(line))
	w.hash.Write(line)
	return nil
}

// Close writes the trailer, brings the file to the disk and returns the
// SHA-256 of the whole file, trailer included.
func (w *Writer) Close(endNS int64) (sum string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.file.Close()
	if w.err != nil {
		return "", w.err
	}
	t := w.trailer
	t.Kind = KindTrailer
	t.Ended = time.Now().UTC().Format(time.RFC3339Nano)
	t.EndNS = endNS
	t.SHA256 = hex.EncodeToString(w.hash.Sum(nil))
	line, err := json.Marshal(&t)
	if err != nil {
		return "", fmt.Errorf("verify: trailer: %w", err)
	}
	if err := w.write(append(line, '\n')); err != nil {
		return "", err
	}
	if err := w.file.Sync(); err != nil {
		return "", fmt.Errorf("verify: evidence may not be on the disk: %w", err)
	}
	w.err = errors.New("verify: the evidence is closed")
	return hex.EncodeToString(w.hash.Sum(nil)), nil
}

// Abandon closes the file without a trailer, so that it reads as incomplete.
func (w *Writer) Abandon() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.file.Close()
	if w.err == nil {
		w.err = errors.New("verify: the evidence was abandoned")
	}
}
