//go:build unix

package load

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"servebench/verify"
)

var generatorsDir = flag.String("generators", "", "keep the files of the four generators in `DIR`")

// Four processes share a rate on one server: each sends its part, and together
// their files are one load.
func TestFourGenerators(t *testing.T) {
	const generators, rate = 4, 16
	for _, arrival := range []string{verify.ArrivalConstant, verify.ArrivalPoisson} {
		t.Run(arrival, func(t *testing.T) {
			s := (&stranger{models: []string{"m"}, step: 2 * time.Millisecond}).start(t)
			var attempts []*attempt
			for k := 1; k <= generators; k++ {
				p := newPlace(t)
				attempts = append(attempts, p.startAs(p.program, []string{
					"-test.run=^$", "-test.cpu=1", "-test.bench=Serve/input=64", "-target", s.url, "-evidence", p.evidence,
					"-output-tokens", "6", "-exact-output", "-rate", fmt.Sprint(rate), "-arrival", arrival, "-duration", "5s", "-settle", "0s",
					"-slo", "ttft=1m,e2e=1m", "-max-lag", "1s", "-max-inflight", "50", "-share", fmt.Sprintf("%d/%d", k, generators), "-seed", fmt.Sprint(40 + k),
				}))
			}
			var parts []verify.Part
			requests, good := 0, 0.0
			for k, a := range attempts {
				o := a.wait()
				o.clean(t, 1)
				o.says(t, fmt.Sprintf("share: %d/%d\n", k+1, generators))
				parts = append(parts, verify.Part{Name: filepath.Base(o.path), Report: o.report})
				c := o.one(t).Configuration
				requests += c.Measured
				for _, m := range c.Metrics {
					if m.Unit == verify.UnitGoodput {
						good += m.Value
					}
				}
				if *generatorsDir != "" && arrival == verify.ArrivalConstant {
					keep(t, o, filepath.Join(*generatorsDir, fmt.Sprintf("%d.jsonl", k+1)))
				}
			}
			merged := verify.Merge(parts...)
			if err := merged.Err(); err != nil {
				t.Fatal(err)
			}
			if len(merged.Results) != 1 || merged.Valid() != 1 {
				t.Fatalf("%d configurations, %d of them valid, want 1", len(merged.Results), merged.Valid())
			}
			r := merged.Results[0]
			if r.Measured != requests || r.Failed != 0 || r.Tokens != int64(6*requests) || len(r.Generators) != generators {
				t.Errorf("%d requests, %d failed, %d tokens of %d generators, want %d, 0, %d of %d", r.Measured, r.Failed, r.Tokens, len(r.Generators), requests, 6*requests, generators)
			}
			// Twice the standard deviation of a Poisson process and more.
			if want := 5 * rate; arrival == verify.ArrivalConstant && requests != want || requests < want-30 || requests > want+30 {
				t.Errorf("%d requests are due within 5 s, want about %d", requests, want)
			}
			values := map[string]float64{}
			for _, m := range r.Metrics {
				values[m.Unit] = m.Value
			}
			if v := values[verify.UnitOffered]; arrival == verify.ArrivalConstant && (v < rate*0.999 || v > rate*1.001) {
				t.Errorf("offered %v requests a second, want %d", v, rate)
			}
			if v := values[verify.UnitGoodput]; v != good {
				t.Errorf("goodput %v, want the sum %v", v, good)
			}
			if v := values[verify.UnitSLOShare]; v != 1 {
				t.Errorf("slo-share %v, want 1", v)
			}
			// All of them reached the one server.
			if n := len(s.requests()); n != requests+generators {
				t.Errorf("the server saw %d requests, want %d and %d warmups", n, requests, generators)
			}
			if merged = verify.Merge(parts[:3]...); merged.Err() == nil || !strings.Contains(merged.Err().Error(), "share 4/4 is missing") {
				t.Errorf("three of four: %v", merged.Err())
			}
		})
	}
}

// keep copies evidence.
func keep(t *testing.T, o *outcome, path string) {
	t.Helper()
	data, err := os.ReadFile(o.path)
	if err == nil {
		err = os.WriteFile(path, data, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestShareFlags(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"-rate", "1", "-share", "1/2", "-seed", "3"}, "-share is for a -target: each generator would start a smol/serve of its own"},
		{[]string{"-target", "http://127.0.0.1:9", "-rate", "1", "-share", "1/2"}, "-share 1/2 needs a -seed, another for each of the generators"},
		{[]string{"-target", "http://127.0.0.1:9", "-rate", "1", "-share", "3/2", "-seed", "3"}, `rate=1: share "3/2", want 1/4 to 4/4, say`},
		{[]string{"-target", "http://127.0.0.1:9", "-rate", "1", "-requests", "1", "-share", "2/2", "-seed", "3"}, "rate=1: share 2/2 of 1 requests has none of them"},
		{[]string{"-target", "http://127.0.0.1:9", "-conc", "1", "-share", "1/2", "-seed", "3"}, "-share is for an open loop"},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			o := p.startAs(p.program, append([]string{"-test.run=^$", "-test.bench=Serve", "-evidence", p.evidence}, test.args...)).wait()
			if o.code != 2 || o.path != "" {
				t.Errorf("exit code %d, evidence %q, want 2 and none", o.code, o.path)
			}
			o.says(t, test.want)
		})
	}
}
