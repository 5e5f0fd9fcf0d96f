package main

func (r *report) herdPicture(command string) string  { return "" }
func (r *report) stormPicture(command string) string { return "" }
