package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	neturl "net/url"
	"os"
	"time"
)

// downloader fetches single files over HTTP. It gives up fast on a host that
// can't be reached, so that a machine without a way to it goes on with the
// next source.
type downloader struct {
	client *http.Client
	stall  time.Duration // the longest silence within a download
}

func newDownloader(connect, stall time.Duration) downloader {
	return downloader{stall: stall, client: &http.Client{Transport: &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: connect}).DialContext,
		TLSHandshakeTimeout:   connect,
		ResponseHeaderTimeout: stall,
		ForceAttemptHTTP2:     true,
	}}}
}

// get writes what url holds to path, which must not exist. It errs unless
// size and hash are those of want.
func (d downloader) get(ctx context.Context, step, url string, want fetched, path string, out *reporter) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stall := time.AfterFunc(d.stall, func() { cancel(fmt.Errorf("nothing came for %v", d.stall)) })
	defer stall.Stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := d.client.Do(req)
	if err != nil {
		var where *neturl.Error // repeats the whole URL
		if errors.As(err, &where) {
			err = fmt.Errorf("%s: %w", req.URL.Host, where.Err)
		}
		return reason(ctx, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s, want 200 OK", req.URL.Host, want.name, resp.Status)
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
			stall.Reset(d.stall)
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
