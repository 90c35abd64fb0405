package verify

import "testing"

// MLPerf Inference's own table of early stopping.
func TestPercentileFloor(t *testing.T) {
	for percent, want := range map[int]int{90: 64, 95: 130, 99: 662} {
		if got := PercentileFloor(percent); got != want {
			t.Errorf("PercentileFloor(%d) = %d, want %d", percent, got, want)
		}
	}
}
