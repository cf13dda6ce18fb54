// The samples of docs/app, which shows the parts between "sample:" and "end".

import cutroom.*
import java.io.File

// sample: session
// The folder is File(context.noBackupFilesDir, "cutroom").
fun start(server: String, folder: File, idToken: () -> String, onSignedOut: (Reason) -> Unit): Cutroom {
    // onSignedOut: show the sign-in; forget drafts only if the reason is ACCOUNT_DELETED.
    val cutroom = Cutroom(server, FileStore(folder), onSignedOut = onSignedOut)
    if (cutroom.session() == null) cutroom.signIn(Provider.A, idToken())
    return cutroom
}
// end

// sample: upload
// In doWork of a CoroutineWorker, within runInterruptible(Dispatchers.IO). Null: Result.retry().
fun upload(cutroom: Cutroom, clip: File, bar: (Double) -> Unit): String? = try {
    cutroom.assets.upload(clip, progress = bar) // after a kill, the same call sends what is missing
} catch (e: CutroomError) {
    if (e.next == Next.AGAIN) null else throw e
}
// end

// sample: separate
fun stems(cutroom: Cutroom, key: String, draft: String): SeparationReady {
    val recording = SeparationByReference(sourceAssetKey = key)
    val job = cutroom.jobs.separate(recording, slot = "$draft.voice") // charged once, however often it is called
    return cutroom.jobs.stems(job.jobId)
}
// end

// sample: wait
fun film(cutroom: Cutroom, job: String, to: File, show: (RenderStatus) -> Unit) {
    try {
        cutroom.jobs.film(job, onState = show) // interrupt the thread when the screen goes away
        cutroom.jobs.download(job, to)
    } catch (e: JobFailed) {
        if (e.code != JobErrorCode.SOURCE_MISSING) throw e
        println("upload it again: ${e.field}")
    }
}
// end

// sample: push
// From FirebaseMessagingService.onNewToken, and at each start.
fun register(cutroom: Cutroom, token: String) {
    try {
        cutroom.register(Device(platform = "platform_a", token = token))
    } catch (e: CutroomError) {
        if (e.next != Next.HIDE) throw e // otherwise this server does not push
    }
}
// end

// sample: buy
// The product is bought with setObfuscatedAccountId(session.user.sub). Call this for what PurchasesUpdatedListener and,
// at each start, queryPurchasesAsync report. `consume` calls BillingClient.consumeAsync.
fun settle(cutroom: Cutroom, bought: Purchase, consume: (String) -> Unit) {
    if (bought.purchaseState != Purchase.PurchaseState.PURCHASED) return // pending: the listener comes again
    val token = bought.purchaseToken
    val purchase = CreditPurchaseRequest("platform_a", bought.orderId ?: token, token, bought.products.first())
    if (cutroom.purchases.add(purchase).any { it.isFinal && it.purchase == purchase }) consume(token)
}
// end

/** The parts of Billing that the samples need. */
class Purchase(val purchaseState: Int, val orderId: String?, val purchaseToken: String, val products: List<String>) {
    object PurchaseState {
        const val PURCHASED = 1
        const val PENDING = 2
    }
}
