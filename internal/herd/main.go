package main

import (
	"fmt"
	"time"
)

func main() {
	for _, n := range []int{100, 1000} {
		for _, st := range []strategy{none, full, equal, decorrelated, elapsedOnly, twin} {
			t := time.Now()
			f := herd{clients: n, server: server{rate: 10}}.runs(st, 200, python)
			fmt.Println(n, st.name, f.calls.mean(), f.last.mean(), time.Since(t))
		}
	}
}
