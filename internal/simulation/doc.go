// Package simulation runs several replicas of the service on one thread, one step at a
// time, in an order and with faults that a seed decides. Its tests hold the code;
// docs/reliability.md tells what they prove, how a failure is replayed, and what is not
// simulated.
package simulation
