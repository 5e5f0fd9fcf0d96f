// Command bench measures package retry side by side with its peers, in one
// run, and writes RESULTS.md:
//
//	go run .            # some six minutes
//	go run . -quick     # three, and too few passes for an interval
//	go run . -rows Wait # the rows that match, printed only; also Asleep, Sizes
package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("bench: ")
	quick := flag.Bool("quick", false, "few and short passes")
	passes := flag.Int("count", 10, "`passes` over all benchmarks")
	benchtime := flag.String("benchtime", "100ms", "of each benchmark in a pass")
	pattern := flag.String("rows", "", "measure only the rows that match this `regexp`, and write no file")
	out := flag.String("o", "RESULTS.md", "`file` to write")
	flag.Parse()
	if *quick {
		*passes, *benchtime = 3, "20ms"
	}
	if err := run(*passes, *benchtime, *pattern, *out); err != nil {
		log.Fatal(err)
	}
}

func run(passes int, benchtime, pattern, out string) error {
	only, err := regexp.Compile(pattern)
	if err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	binary := filepath.Join(temp, "bench.test")
	if _, err := output(".", "go", "test", "-c", "-o", binary, "."); err != nil {
		return err
	}

	r := results{}
	for pass := range passes {
		log.Printf("pass %d of %d", pass+1, passes)
		if err := r.time(binary, benchtime, only); err != nil {
			return err
		}
		// The sizes hardly vary, and each needs a process of its own.
		if pass < min(passes, 5) {
			if err := r.sleep(binary, only); err != nil {
				return err
			}
		}
	}
	var report bytes.Buffer
	if pattern == "" {
		if err := head(&report, passes, benchtime); err != nil {
			return err
		}
	}
	r.write(&report, only)
	r.writeAsleep(&report, only)
	if only.MatchString("Sizes") {
		log.Print("sizes")
		sizes, err := measureSizes(temp)
		if err != nil {
			return err
		}
		writeSizes(&report, sizes)
	}
	if pattern == "" {
		if err := os.WriteFile(out, report.Bytes(), 0o666); err != nil {
			return err
		}
	}
	_, err = io.Copy(os.Stdout, &report)
	return err
}

// output runs a command in dir and returns what it prints.
func output(dir, name string, args ...string) (string, error) {
	c := exec.Command(name, args...)
	c.Dir = dir
	var stderr bytes.Buffer
	c.Stderr = &stderr
	b, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, b, stderr.Bytes())
	}
	return string(b), nil
}
