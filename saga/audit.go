package saga

// The verbs of audit lines, and the library's own name in them.
const (
	verbRetry           = "retry"
	verbMarkDone        = "mark_done"
	verbMarkCompensated = "mark_compensated"
	verbForce           = "force_compensate"
	verbReverse         = "reverse"
	verbCancelDropped   = "cancel_dropped"

	libraryActor = "tsuzuki"
)
