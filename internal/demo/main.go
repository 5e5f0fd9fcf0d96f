// Command demo shows package retry at work: real HTTP calls to a server that
// fails in various ways, and for each attempt what was decided, and why.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

const usage = `Usage: go run ./internal/demo [-h] [orders]

Starts a server on loopback that fails in various ways, calls it through
retry.Do with real HTTP, and prints each attempt: when it started, what came of
it, what that proves (its class), and what was decided. Scenes:

`

const ordersUsage = `
With the argument orders: an order at a mock exchange on loopback, whose answer
comes too late or whose request is lost. A blind repeat buys twice;
retry.Submit buys once. Scenes:

`

func main() {
	flag.Usage = func() {
		w := flag.CommandLine.Output()
		fmt.Fprint(w, usage)
		for i, s := range scenes() {
			fmt.Fprintf(w, "  %d. %s\n", i+1, s.title)
		}
		fmt.Fprint(w, ordersUsage)
		for i, s := range tales() {
			fmt.Fprintf(w, "  %d. %s\n", i+1, s.title)
		}
		fmt.Fprint(w, "\nEach takes a few seconds and exits with 1 if a scene does not come out as it should.\n")
	}
	flag.Parse()
	play := run
	switch {
	case flag.NArg() == 1 && flag.Arg(0) == "orders":
		play = runOrders
	case flag.NArg() > 0:
		fmt.Fprintf(os.Stderr, "demo: unknown arguments %q\n", flag.Args())
		flag.Usage()
		os.Exit(2)
	}
	if err := play(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// run plays all scenes and returns what did not come out as it should.
func run(ctx context.Context, w io.Writer) error {
	srv, err := serve()
	if err != nil {
		return err
	}
	defer srv.close()
	fmt.Fprintln(w, legend)
	var failed error
	for i, s := range scenes() {
		if err := s.play(ctx, w, srv, i+1); err != nil {
			fmt.Fprintf(w, "  NOT AS IT SHOULD BE: %v\n", err)
			failed = errors.Join(failed, fmt.Errorf("scene %d: %w", i+1, err))
		}
	}
	return failed
}
