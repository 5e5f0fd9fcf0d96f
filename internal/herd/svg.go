package main

import (
	"fmt"
	"math"
	"strings"
)

// drawing is an SVG on a background of its own, so that it reads the same on a light page and a dark
// one.
type drawing struct {
	strings.Builder
	width, height int
}

const (
	ink    = "#1b1f24"
	faint  = "#57606a"
	grid   = "#e4e7eb"
	paper  = "#ffffff"
	border = "#d0d7de"
)

func newDrawing(width, height int, about string) *drawing {
	d := &drawing{width: width, height: height}
	fmt.Fprintf(d, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif" font-size="13">`+"\n", width, height, width, height)
	fmt.Fprintf(d, "<title>%s</title>\n", escape(about))
	fmt.Fprintf(d, `<rect x="0.5" y="0.5" width="%d" height="%d" rx="8" fill="%s" stroke="%s"/>`+"\n", width-1, height-1, paper, border)
	return d
}

func (d *drawing) done() string {
	d.WriteString("</svg>\n")
	return d.String()
}

func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}

// text writes s; anchor is start, middle or end. A halo keeps it legible across lines.
func (d *drawing) text(x, y float64, anchor, color, s string, more ...string) {
	fmt.Fprintf(d, `<text x="%.1f" y="%.1f" text-anchor="%s" fill="%s" stroke="%s" stroke-width="3" stroke-linejoin="round" paint-order="stroke" %s>%s</text>`+"\n",
		x, y, anchor, color, paper, strings.Join(more, " "), escape(s))
}

const (
	bold  = `font-weight="600"`
	small = `font-size="12"`
	large = `font-size="16"`
)

func (d *drawing) line(x1, y1, x2, y2 float64, color string, width float64, more ...string) {
	fmt.Fprintf(d, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="%g" %s/>`+"\n", x1, y1, x2, y2, color, width, strings.Join(more, " "))
}

func (d *drawing) dot(x, y, radius float64, color string) {
	fmt.Fprintf(d, `<circle cx="%.1f" cy="%.1f" r="%g" fill="%s" stroke="%s"/>`+"\n", x, y, radius, color, paper)
}

func (d *drawing) rect(x, y, width, height float64, color string) {
	fmt.Fprintf(d, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n", x, y, width, height, color)
}

// path draws a line through points.
func (d *drawing) path(points [][2]float64, color string, width float64) {
	fmt.Fprintf(d, `<polyline fill="none" stroke="%s" stroke-width="%g" stroke-linejoin="round" points="`, color, width)
	for i, p := range points {
		if i > 0 {
			d.WriteByte(' ')
		}
		fmt.Fprintf(d, "%.1f,%.1f", p[0], p[1])
	}
	d.WriteString("\"/>\n")
}

// axis maps values to places.
type axis struct {
	low, high float64 // values
	from, to  float64 // places
	log       bool
	ticks     []float64
	unit      string // behind each number
}

func (a axis) at(v float64) float64 {
	low, high := a.low, a.high
	if a.log {
		low, high, v = math.Log(low), math.Log(high), math.Log(v)
	}
	return a.from + (v-low)/(high-low)*(a.to-a.from)
}

// number is v with thousands apart.
func number(v float64) string {
	s := fmt.Sprintf("%g", v)
	if v >= 1000 {
		n := int(math.Round(v))
		s = fmt.Sprintf("%d,%03d", n/1000, n%1000)
	}
	return s
}

// frame draws the grid of two axes, and their names.
func (d *drawing) frame(x, y axis, xName, yName string) {
	for _, v := range x.ticks {
		d.line(x.at(v), y.from, x.at(v), y.to, grid, 1)
		d.text(x.at(v), y.from+18, "middle", faint, number(v)+x.unit, small)
	}
	for _, v := range y.ticks {
		d.line(x.from, y.at(v), x.to, y.at(v), grid, 1)
		d.text(x.from-8, y.at(v)+4, "end", faint, number(v)+y.unit, small)
	}
	d.line(x.from, y.from, x.to, y.from, faint, 1)
	d.line(x.from, y.from, x.from, y.to, faint, 1)
	if xName != "" {
		d.text((x.from+x.to)/2, y.from+38, "middle", ink, xName)
	}
	d.text(x.from-8, y.to-12, "start", ink, yName)
}
