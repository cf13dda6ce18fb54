// Package simulation runs several replicas of the service on one thread, one step at a time, in an order and with
// faults that a seed decides. The code is in its tests. docs/reliability.md describes what they prove, how to replay a
// failure, and what is not simulated.
package simulation
