package main

import (
	"fmt"
	"time"
)

func main() {
	for _, d := range defences {
		t := time.Now()
		f := weather.runs(d, 2)
		fmt.Printf("%s %.2f %.2f %.0f %v\n", d.name, f.perRequest.mean(), f.peak.mean(), f.recovery.mean(), time.Since(t))
	}
}
