import Foundation

public typealias Purchase = CreditPurchaseRequest

/// The outcome of a purchase. Finish it with the store unless it is `kept`.
public enum Settled: Sendable {
    case credited(Purchase, granted: Int, balance: Int)
    /// It is never credited: `detail` says why.
    case dropped(Purchase, detail: String)
    /// It stays in the queue: the app presents it again at its next start.
    case kept(Purchase, CutroomError)

    public var purchase: Purchase {
        switch self {
        case .credited(let purchase, _, _), .dropped(let purchase, _), .kept(let purchase, _): return purchase
        }
    }

    /// Whether the app finishes the purchase with the store.
    public var isFinal: Bool {
        if case .kept = self { return false }
        return true
    }
}

/// Purchases that the store has accepted and the server has not credited yet. They survive the app.
public actor Purchases {
    private static let key = "cutroom.purchases"
    private let api: API
    private var presenting: Task<[Settled], any Error>?

    init(_ api: API) { self.api = api }

    public func waiting() throws -> [Purchase] { try api.store.load([Purchase].self, Self.key) ?? [] }

    /// Keeps a purchase that the store reports as paid, and presents everything that waits.
    public func add(_ purchase: Purchase) async throws -> [Settled] {
        try api.store.save(Self.key, others(than: purchase) + [purchase])
        // A round that began earlier does not know the new purchase.
        while let round = presenting {
            if let settled = try? await round.value, settled.contains(where: { $0.purchase == purchase }) { return settled }
        }
        return try await present()
    }

    /// Presents the purchases that wait, at every start of the app. A purchase is credited once, however often it is
    /// presented.
    public func present() async throws -> [Settled] {
        let round = presenting ?? Task {
            defer { presenting = nil }
            return try await presentAll()
        }
        presenting = round
        return try await round.value
    }

    private func presentAll() async throws -> [Settled] {
        var settled: [Settled] = []
        for purchase in try waiting() {
            let outcome = try await settle(purchase)
            settled.append(outcome)
            if case .kept = outcome { continue }
            try api.store.save(Self.key, others(than: purchase))
        }
        return settled
    }

    private func others(than purchase: Purchase) throws -> [Purchase] {
        try waiting().filter { $0.transactionId != purchase.transactionId || $0.platform != purchase.platform }
    }

    private func settle(_ purchase: Purchase) async throws -> Settled {
        do {
            let answer = try await api.send(Call("POST", "/credits/purchase", json: encode(purchase)))
            let credited = try answer.decoded(CreditPurchaseResponse.self)
            return .credited(purchase, granted: credited.granted, balance: credited.balance)
        } catch let error as CutroomError {
            if error.code == "receipt_invalid", let detail = error.detail, Contract.finalRefusals.contains(detail) {
                return .dropped(purchase, detail: detail)
            }
            return .kept(purchase, error)
        }
    }
}
