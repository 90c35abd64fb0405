package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// reporter writes what set-up has to say: a line at a time, and on a terminal
// a bar below the lines while something long goes on.
type reporter struct {
	w    io.Writer
	bars bool
}

func newReporter(w io.Writer) *reporter {
	f, ok := w.(*os.File)
	return &reporter{w: w, bars: ok && term.IsTerminal(int(f.Fd()))}
}

func (r *reporter) line(format string, args ...any) {
	fmt.Fprintf(r.w, "setup: "+format+"\n", args...)
}

// bar is one long thing under way; its methods do nothing without a terminal.
type bar struct{ b *progressbar.ProgressBar }

// bytes opens a bar over total bytes, with what's done, the rate and the time left.
// Without a terminal there is neither bar nor line.
func (r *reporter) bytes(what string, total int64) *bar {
	return r.open(what, total, progressbar.OptionShowBytes(true), progressbar.OptionShowCount())
}

// items opens a bar over a number of things.
func (r *reporter) items(what string, total int64) *bar {
	return r.open(what, total, progressbar.OptionShowCount())
}

func (r *reporter) open(what string, total int64, how ...progressbar.Option) *bar {
	if !r.bars || total <= 0 {
		return &bar{}
	}
	return &bar{progressbar.NewOptions64(total, append(how,
		progressbar.OptionSetWriter(r.w),
		progressbar.OptionSetDescription(what),
		progressbar.OptionSetWidth(24),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionSetPredictTime(true),
		progressbar.OptionClearOnFinish(),
	)...)}
}

func (b *bar) add(n int64) {
	if b.b != nil {
		b.b.Add64(n)
	}
}

// set moves the bar to n, short of its end: a bar that is full is closed.
func (b *bar) set(n int64) {
	if b.b != nil {
		b.b.Set64(min(n, b.b.GetMax64()-1))
	}
}

func (b *bar) describe(what string) {
	if b.b != nil {
		b.b.Describe(what)
	}
}

// done takes the bar off the screen.
func (b *bar) done() {
	if b.b != nil {
		b.b.Finish()
	}
}
