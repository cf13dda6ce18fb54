package cutroom

import java.util.concurrent.locks.ReentrantLock
import org.json.JSONArray

/** The outcome of a purchase. */
sealed class Settled {
    abstract val purchase: CreditPurchaseRequest

    /** Whether the app finishes the purchase with the store. */
    val isFinal: Boolean get() = this !is Kept

    data class Credited(override val purchase: CreditPurchaseRequest, val granted: Long, val balance: Long) : Settled()

    /** It is never credited: [detail] says why. */
    data class Dropped(override val purchase: CreditPurchaseRequest, val detail: String) : Settled()

    /** It stays in the queue: the app presents it again at its next start. */
    data class Kept(override val purchase: CreditPurchaseRequest, val error: CutroomError) : Settled()
}

/** Purchases that the store has accepted and the server has not credited yet. They survive the app. */
class Purchases internal constructor(private val cutroom: Cutroom) {
    private val list = Any()
    private val round = ReentrantLock()

    fun waiting(): List<CreditPurchaseRequest> = synchronized(list) {
        cutroom.store.get(KEY)?.let { text -> JSONArray(text).items { a, i -> CreditPurchaseRequest.of(a.getJSONObject(i)) } } ?: emptyList()
    }

    /** Keeps a purchase that the store reports as paid, and presents everything that waits. */
    fun add(purchase: CreditPurchaseRequest): List<Settled> {
        synchronized(list) { keep(others(purchase) + purchase) }
        return present(purchase)
    }

    /** Presents the purchases that wait, at every start of the app. A purchase is credited once, however often it is presented. */
    fun present(): List<Settled> = present(null)

    /** Presents [added] even if another thread has done so in the meantime, because the caller needs its outcome. */
    private fun present(added: CreditPurchaseRequest?): List<Settled> {
        round.lockInterruptibly()
        try {
            val others = if (added == null) waiting() else others(added) + added
            return others.map { purchase ->
                settle(purchase).also { if (it.isFinal) synchronized(list) { keep(others(purchase)) } }
            }
        } finally {
            round.unlock()
        }
    }

    private fun others(p: CreditPurchaseRequest) = waiting().filter { it.transactionId != p.transactionId || it.platform != p.platform }

    private fun keep(purchases: List<CreditPurchaseRequest>) =
        cutroom.store.put(KEY, purchases.array { it.json() }.toString().takeIf { purchases.isNotEmpty() })

    private fun settle(purchase: CreditPurchaseRequest): Settled = try {
        val answer = cutroom.send("POST", "/credits/purchase", purchase.json().toString()).read(CreditPurchaseResponse::of)
        Settled.Credited(purchase, answer.granted, answer.balance)
    } catch (e: CutroomError) {
        val detail = e.detail.orEmpty()
        if (e.code == "receipt_invalid" && detail in Contract.finalRefusals) Settled.Dropped(purchase, detail) else Settled.Kept(purchase, e)
    }

    private companion object {
        const val KEY = "cutroom.purchases"
    }
}
