package job

import "cutroom/internal/db"

// Topic announces every change of a job that its owner can see.
func Topic(id string) string { return "job/" + id }

// WorkTopic wakes the workers of every replica, because a job of a kind may be claimed.
func WorkTopic(kind string) string { return db.ForWorkers + kind }

// revoked announces to the worker of a job, on any replica, that the job was taken away
// for good.
func revoked(id string) string { return db.ForWorkers + "revoked/" + id }
