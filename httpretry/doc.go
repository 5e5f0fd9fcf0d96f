// Package httpretry joins net/http to the loop of package retry.
//
// [Transport] repeats requests under any http.Client. [Check] makes errors of
// responses for those who call a client inside [retry.Do] themselves.
//
//	client := &http.Client{Transport: &httpretry.Transport{}}
//	resp, err := client.Get("https://api.example/users/7")
//	if err != nil {
//		return err
//	}
//	defer resp.Body.Close()
//	if err := httpretry.Check(resp); err != nil {
//		return err
//	}
//
// # What is repeated
//
// What a request can change is told by its method: GET, HEAD, OPTIONS, TRACE and
// QUERY read, PUT and DELETE are idempotent, all else changes something at every
// application. An Idempotency-Key makes a POST idempotent, [WithEffect] outranks
// both. Statuses are classified by [retry.ClassifyStatus], or by a hook that may
// read the body.
//
// # How long it waits
//
// A server's hint is a minimum. Which fields are believed is the user's choice:
// see [Signal].
package httpretry
