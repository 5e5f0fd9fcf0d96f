package main

func measureSizes(string) ([]size, error) { return nil, nil }
type size struct{}
func writeSizes(any, []size) {}
