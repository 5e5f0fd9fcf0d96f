package retry_test

import "github.com/seed-3d0f8764/retry"

// awsBucket is the retry quota of AWS's SDKs in standard mode, as of 2026.
func awsBucket() *retry.Bucket {
	return &retry.Bucket{Capacity: 500, Cost: 14, ThrottledCost: 5, PerSuccess: 1, Refund: 1}
}
