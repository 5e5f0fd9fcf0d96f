package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-3d0f8764/retry"
	"github.com/stretchr/testify/require"
)

// The demo is the main job: it must come out as its captions say, in under ten
// seconds of real time.
func TestEverySceneComesOutAsItSays(t *testing.T) {
	var out bytes.Buffer
	start := time.Now()
	require.NoError(t, run(t.Context(), &out))
	require.Less(t, time.Since(start), 10*time.Second)

	text := out.String()
	at := 0
	for _, s := range scenes() {
		i := strings.Index(text[at:], s.title)
		require.GreaterOrEqual(t, i, 0, "scene %q is missing or out of order", s.title)
		at += i
	}
	for line := range strings.Lines(text) {
		if !strings.Contains(line, "=>") { // an error's text is as long as it is
			require.LessOrEqual(t, len([]rune(line)), 121, "too long: %s", line)
		}
	}
	require.Contains(t, text, `
   #  start  outcome               class      window  draw  hint  wait   left   decision
   1  0s     timed out after 1.5s  unknown    500ms   0.8   -     400ms  10.5s  retrying
   2  1.9s   429                   throttled  1s      0.6   2s    2s     9.8s   retrying
   3  4.2s   timed out after 1.5s  unknown    2s      0.6   -     1.2s   6.3s   retrying
   4  6.9s   timed out after 1.5s  unknown    4s      0.6   -     2.4s   3.6s   gave up: deadline

   => retry: balance: gave up after 4 attempts in 8.4s: the next would end 300ms past the deadline: context deadline exceeded
`)
	require.Contains(t, text, "interrupt signal received")
}

// A scene that does not come out as it should is seen, so that CI sees it.
func TestASceneThatFailsIsSeen(t *testing.T) {
	srv, err := serve()
	require.NoError(t, err)
	defer srv.close()
	s := scenes()[2] // 401
	s.attempts = 2
	require.ErrorContains(t, s.play(t.Context(), &bytes.Buffer{}, srv, 1), "1 attempts, not 2")
	s = scenes()[2]
	s.reason = nil
	require.Error(t, s.play(t.Context(), &bytes.Buffer{}, srv, 1))
}

// A blind repeat buys twice, Submit once; the reader sees it in a few seconds.
func TestTheStoryOfTheOrdersComesOutAsItSays(t *testing.T) {
	var out bytes.Buffer
	start := time.Now()
	require.NoError(t, runOrders(t.Context(), &out))
	require.Less(t, time.Since(start), 6*time.Second)

	var orders []int // at the venue, per scene
	for line := range strings.Lines(out.String()) {
		if !strings.Contains(line, "=>") { // an error's text is as long as it is
			require.LessOrEqual(t, len([]rune(line)), 121, "too long: %s", line)
		}
		switch {
		case len(orders) < len(tales()) && strings.HasPrefix(line, fmt.Sprintf("%d. %s\n", len(orders)+1, tales()[len(orders)].title)):
			orders = append(orders, 0)
		case strings.Contains(line, "the venue    => order"):
			require.Contains(t, line, "BUY 3, FILLED")
			orders[len(orders)-1]++
		}
	}
	require.Equal(t, []int{2, 1, 1, 1}, orders)
	require.Contains(t, out.String(), "the client   => retry: order: ")
	require.Contains(t, out.String(), "proof")
}

// A story that does not come out as it should is seen, so that CI sees it.
func TestAStoryThatFailsIsSeen(t *testing.T) {
	s := tales()[0]
	require.NoError(t, s.check(nil, 2, 2))
	require.ErrorContains(t, s.check(nil, 2, 1), "1 orders, not 2")
	require.ErrorContains(t, s.check(nil, 1, 2), "1 requests to buy, not 2")
	require.Error(t, s.check(retry.ErrAttempts, 2, 2))
	s.reason = retry.ErrUnknownOutcome
	require.Error(t, s.check(nil, 2, 2))
}
