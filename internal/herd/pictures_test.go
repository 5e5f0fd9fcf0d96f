package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// textOf returns what a picture says: it is well-formed XML, and stays within its own view.
func textOf(t *testing.T, picture string) string {
	t.Helper()
	var words strings.Builder
	d := xml.NewDecoder(strings.NewReader(picture))
	for depth := 0; ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			require.Zero(t, depth)
			return words.String()
		}
		require.NoError(t, err)
		switch token := token.(type) {
		case xml.StartElement:
			if depth++; depth == 1 {
				require.Equal(t, xml.Name{Space: "http://www.w3.org/2000/svg", Local: "svg"}, token.Name)
			}
		case xml.EndElement:
			depth--
			words.WriteByte('\n')
		case xml.CharData:
			words.Write(token)
		}
	}
}

// The pictures of the README are drawn by the command in full, say so, and have a background of their
// own: they read the same on a dark page.
func TestCommittedPictures(t *testing.T) {
	for name, says := range map[string][]string{
		"herd.svg": {"calls in all (log scale)", "time until the last has succeeded", "1,000 clients",
			"ElapsedJitter", "PacedGate, exact hint", "hint alone", "20 s"},
		"storm.svg": {"time since the outage began", "calls sent, as a multiple of the requests that come in",
			"Bucket: up to", "no budget", "100%", "never"},
	} {
		picture, err := os.ReadFile(filepath.Join("..", "..", "docs", name))
		require.NoError(t, err)
		text := textOf(t, string(picture))
		require.Contains(t, text, "Drawn by: go run ./internal/herd\n", name)
		for _, words := range says {
			require.Contains(t, text, words, name)
		}
		require.Contains(t, string(picture), `rx="8" fill="`+paper+`"`, name)
		require.NotContains(t, string(picture), "NaN", name)
	}
}

// The command draws what it has measured, well-formed, and names itself with its flags.
func TestPicturesAreDrawn(t *testing.T) {
	r := &report{crowds: map[string][2]figures{}, storms: map[string][]aftermath{}, quick: true}
	var f figures
	f.calls.add(500)
	f.last.add(20)
	for _, m := range marks {
		r.crowds[m.name] = [2]figures{f, f}
	}
	r.crowds[none.name] = [2]figures{f, f}
	for _, d := range defences {
		r.storms[d.name] = []aftermath{{calls: make([]float64, 150), requests: make([]float64, 150), good: make([]float64, 150)}}
	}
	folder := t.TempDir()
	require.NoError(t, r.draw(folder))
	for _, name := range []string{"herd.svg", "storm.svg"} {
		picture, err := os.ReadFile(filepath.Join(folder, name))
		require.NoError(t, err)
		require.Contains(t, textOf(t, string(picture)), "Drawn by: go run ./internal/herd -quick -svg "+folder)
	}
}
