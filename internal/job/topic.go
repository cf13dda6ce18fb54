package job

import "cutroom/internal/db"

// Topic announces every change of a job that its owner can see.
func Topic(id string) string { return "job/" + id }

// revoked announces to the worker of a job, on any replica, that the job was taken away
// for good.
func revoked(id string) string { return db.ForWorkers + "revoked/" + id }
