import cutroom.*
import java.io.File

fun firstFilm(server: String, idToken: String, folder: File, clip: File, film: File) {
    val cutroom = Cutroom(server, FileStore(folder)) // on Android: File(context.noBackupFilesDir, "cutroom")
    try {
        if (cutroom.session() == null) cutroom.signIn(Provider.A, idToken)
        val key = cutroom.assets.upload(clip) { println("uploaded $it") }
        val config = RenderConfigV3(listOf(SegmentV3(order = 0, durationMs = 2000, sourceAssetKey = key)))
        val job = cutroom.jobs.render(config, slot = "draft 1")
        cutroom.jobs.film(job.jobId) { println("${it.status} ${it.progress}") }
        cutroom.jobs.download(job.jobId, film)
    } catch (e: CutroomError) {
        when (e.next) {
            Next.SIGN_IN -> println("sign in again")
            Next.AGAIN -> println("try again in ${e.retryAfterSec ?: 10.0} s")
            else -> println("${e.message} ${e.field ?: ""}")
        }
        throw e
    }
}
