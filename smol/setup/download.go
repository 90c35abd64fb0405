package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

// Bounds on how long a silent network is waited for.
const (
	connectTimeout = 3 * time.Second
	headersTimeout = 15 * time.Second
	stallTimeout   = 30 * time.Second
)

// errStalled is the cause of a download that was given up.
var errStalled = fmt.Errorf("nothing came for %v", stallTimeout)

// httpClient gives up fast on a host that can't be reached, so that a machine
// without a way to it goes on with the next source.
var httpClient = &http.Client{Transport: &http.Transport{
	Proxy:                 http.ProxyFromEnvironment,
	DialContext:           (&net.Dialer{Timeout: connectTimeout}).DialContext,
	TLSHandshakeTimeout:   connectTimeout,
	ResponseHeaderTimeout: headersTimeout,
	ForceAttemptHTTP2:     true,
}}

// download writes what url holds to path. It errs unless size and hash are
// those of want.
func download(ctx context.Context, step, url string, want fetched, path string, out *reporter) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stall := time.AfterFunc(stallTimeout, func() { cancel(errStalled) })
	defer stall.Stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := httpClient.Do(req)
	if err != nil {
		return reason(ctx, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s, want 200", url, resp.Status)
	}
	w, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer w.Close()
	if want.bytes > 1e6 {
		out.line("%s: fetching %s, %s", step, want.name, megabytes(want.bytes))
	}
	bar := out.bytes(step+": "+want.name, want.bytes)
	defer bar.done()
	body := io.LimitReader(resp.Body, want.bytes+1)
	buf := make([]byte, 1<<17)
	for {
		n, err := body.Read(buf)
		if n > 0 {
			stall.Reset(stallTimeout)
			bar.add(int64(n))
			if _, err := w.Write(buf[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("%s: %w", want.name, reason(ctx, err))
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return demand(ctx, path, want)
}

// reason is the cause of a cancelled ctx, or err.
func reason(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}
