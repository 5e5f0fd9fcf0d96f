package main

import "math"

// stat is a sample of one figure.
type stat struct {
	n                  int
	sum, squares, most float64
}

func (s *stat) add(x float64) {
	s.n++
	s.sum += x
	s.squares += x * x
	s.most = max(s.most, x)
}

func (s *stat) mean() float64 { return s.sum / float64(s.n) }

// sure is half the width of the interval that holds the true mean in 95 of 100 samples.
func (s *stat) sure() float64 {
	if s.n < 2 {
		return 0
	}
	n := float64(s.n)
	variance := max(0, s.squares-s.sum*s.sum/n) / (n - 1)
	return 1.96 * math.Sqrt(variance/n)
}
