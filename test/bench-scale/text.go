package main

// The texts of the report. None of them says anything that a figure might contradict.
const (
	introScale = `
With PostgreSQL %s. Everything runs on the machine: all workers, the PostgreSQL server, which is the tests' (over TLS, without fsync,
so its figures lack the disk's share), and the S3 server. With many workers,
the database competes with them for the cores; in production it has its own, so the efficiencies are lower bounds.

The first two tables simulate the encoding alone: a worker is the service's own loop with one slot and a pool of three connections,
rows, leases, notifications, shared parts and the bucket are real, and the engine sleeps. Before it is measured, all workers make one
film together, as in a service at work: connections are open and statements prepared. All workers are one process, with the garbage
collector's target of the service.
`
	introBatch = `
Idle workers wake to a batch of %d films of %v for each of them, and empty it.

- **Wall**: from the commit of the batch to the last job's completion. **Ideal**: films alone, no time between them.
  **Efficiency**: ideal by wall.
- **Job's end to next claim**: from the commit that completes a job to the claim of the same worker's next one, by the database's
  clock in whole milliseconds: releasing the lease, and the claim. Uploads are deleted beside the next job.
- **Film's end to next film**: the whole time in which a worker encodes nothing: also storing the film, completing its job, and
  fetching the next one's source. It is the same for a film of a minute.
- **Transactions per job**: everything between an idle system and an idle system, so with the submission, progress, and the attempts
  of workers that found the queue empty. **PostgreSQL CPU** is that of the server and its sessions in the same time.
`
	introFilm = `
One job of %d parts of %v each; all workers but the one that claims it are idle and assist. Only encoding is simulated. In
a real film one worker also analyses, mixes and joins, alone.

- **Wall**: from the commit of the job to its completion. **Ideal**: the parts alone, evenly divided. **Speed-up** is against the
  parts alone one after the other.
- **Parts made twice**: work that two workers did because one did not know of the other's.
- **Transactions per part**: claiming a part is one, and reporting it another. In a burst as short as this one the beginning and
  the end weigh most: four notifications (the job, its claim, its parts, its end), each a transaction of every session that
  listens, and every worker's look for the job and for a part.
`
	introQueue = `
How long the queue may grow before claiming suffers. A cycle is a claim, the transaction that completes the job, and the insertion of
a new job (timed by the rate alone), so that the queue keeps its length; **Waiting** is that length and **Finished** how many ended
jobs the table holds besides. Workers do nothing else here, sixteen of them are more than the cores, and their waiting for a core is in
the latencies. The jobs belong to 1000 owners.
`
	introTurns = `
How fast jobs are claimed in fair turns. After each claim a worker completes its job, which rate and CPU include, so
that as many jobs run as there are workers.
`
)
