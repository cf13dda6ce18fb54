package main

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"cutroom/internal/sandbox/api"
	"cutroom/internal/testkit/apitest"
	"cutroom/internal/testkit/benchtest"
)

// load is the load that one endpoint sustained.
type load struct {
	perSecond float64
	p50, p99  time.Duration
	cpu       time.Duration // of the server, for each request
	errors    int
}

// warmUp is how long requests are sent before each measurement without being counted.
const warmUp = time.Second

// measure sends requests to one address as a user, as fast as the clients can with one request each at a time.
func (o options) measure(t testing.TB, u *apitest.User, path string) load {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: o.clients, MaxConnsPerHost: o.clients}, Timeout: 30 * time.Second}
	defer client.CloseIdleConnections()
	if err := ask(client, u, path); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), warmUp+o.duration)
	defer cancel()
	began := time.Now().Add(warmUp)
	var mu sync.Mutex
	var all []time.Duration
	failed := 0
	used := make(chan time.Duration, 1)
	time.AfterFunc(warmUp, func() { used <- benchtest.TreeCPU(u.PID(0)) })
	var wg sync.WaitGroup
	for range o.clients {
		wg.Go(func() {
			var mine []time.Duration
			errors := 0
			for ctx.Err() == nil {
				asked := time.Now()
				err := ask(client, u, path)
				if asked.Before(began) || ctx.Err() != nil {
					continue
				}
				if err != nil {
					errors++
					continue
				}
				mine = append(mine, time.Since(asked))
			}
			mu.Lock()
			defer mu.Unlock()
			all, failed = append(all, mine...), failed+errors
		})
	}
	wg.Wait()
	if len(all) == 0 {
		t.Fatalf("no answer from %s", path)
	}
	slices.Sort(all)
	return load{perSecond: float64(len(all)) / o.duration.Seconds(), p50: benchtest.Quantile(all, 50), p99: benchtest.Quantile(all, 99),
		cpu: (benchtest.TreeCPU(u.PID(0)) - <-used) / time.Duration(len(all)), errors: failed}
}

// ask sends a GET without the checks of apitest, which take longer than the answer.
func ask(client *http.Client, u *apitest.User, path string) error {
	_, err := (&api.Client{Base: u.URL, HTTP: client}).Call(context.Background(), api.Request{Path: path, Token: u.Token}, nil)
	return err
}
