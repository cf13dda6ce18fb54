// The samples of docs/app, which shows the parts between "sample:" and "end".

import Cutroom
import Foundation

#if canImport(FoundationNetworking)
    import FoundationNetworking
#endif
#if canImport(StoreKit)
    import StoreKit
#endif

// sample: session
func makeClient(server: URL, onSignedOut: @escaping @Sendable (SignedOut) -> Void) throws -> Cutroom {
    let support = FileManager.default.urls(for: .applicationSupportDirectory, in: .userDomainMask)[0]
    var options = Options()
    options.onSignedOut = onSignedOut  // show the sign-in; forget drafts only if it is .accountDeleted
    return Cutroom(baseURL: server, store: try FileStore(folder: support.appendingPathComponent("cutroom")), options: options)
}

func start(_ cutroom: Cutroom, idToken: @Sendable () async throws -> String) async throws -> Account {
    if try await cutroom.session() == nil { try await cutroom.signIn(.a, idToken: idToken()) }
    return try await cutroom.account()
}
// end

// sample: upload
func upload(_ clip: URL, with cutroom: Cutroom, bar: @escaping @Sendable (Double) -> Void) async throws -> String {
    try await cutroom.assets.upload(file: clip, progress: bar)  // after a kill, the same call sends what is missing
}

/// In a background session, which outlives the app and may start late: if a task fails, call this again.
func uploadInBackground(_ clip: URL, with cutroom: Cutroom, session: URLSession) async throws -> String {
    let (key, request) = try await cutroom.assets.prepare(file: clip)
    guard let request else { return key }  // the server has it
    let task = session.uploadTask(with: request, fromFile: clip)
    task.taskDescription = clip.path
    task.resume()
    return key
}
// end

// sample: separate
func stems(of key: String, draft: String, with cutroom: Cutroom) async throws -> SeparationReady {
    let recording = SeparationByReference(sourceAssetKey: key)
    let job = try await cutroom.jobs.separate(recording, slot: draft + ".voice")  // charged once, however often it is called
    return try await cutroom.jobs.stems(job.jobId)
}
// end

// sample: wait
func film(_ job: String, to file: URL, with cutroom: Cutroom, show: @Sendable (RenderStatus) -> Void) async throws {
    do {
        _ = try await cutroom.jobs.film(job, onState: show)  // cancel the task when the screen goes away
        try await cutroom.jobs.download(job, to: file)
    } catch let failed as JobFailed where failed.code == JobErrorCode.sourceMissing {
        print("upload it again:", failed.field ?? "")
    }
}
// end

// sample: push
// From didRegisterForRemoteNotificationsWithDeviceToken, at each start.
func register(_ token: Data, with cutroom: Cutroom) async throws {
    let name = token.map { String(format: "%02x", $0) }.joined()
    do {
        try await cutroom.register(Device(platform: "platform_b", token: name))
    } catch let error as CutroomError where error.next == .hide {
        // This server does not push.
    }
}
// end

// sample: buy
// The product is bought with the option .appAccountToken of the session's user.sub. Call this for what the purchase
// returns, for each of Transaction.unfinished at the start, and for each of Transaction.updates.
func settle(_ signed: VerificationResult<Transaction>, with cutroom: Cutroom) async throws {
    let transaction = signed.unsafePayloadValue  // the server verifies
    let purchase = Purchase(
        platform: "platform_b", transactionId: String(transaction.id), receipt: signed.jwsRepresentation,
        productId: transaction.productID)
    for settled in try await cutroom.purchases.add(purchase) where settled.isFinal && settled.purchase == purchase {
        await transaction.finish()
    }
}
// end

#if !canImport(StoreKit)
    /// The parts of StoreKit that the samples need.
    final class Transaction: Sendable {
        let id: UInt64
        let productID: String
        let finished = Box<Bool>()

        init(id: UInt64, productID: String) {
            self.id = id
            self.productID = productID
        }

        func finish() async { finished.add(true) }
    }

    struct VerificationResult<Signed: Sendable>: Sendable {
        let unsafePayloadValue: Signed
        let jwsRepresentation: String
    }
#endif
