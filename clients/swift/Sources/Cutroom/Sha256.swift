import Foundation

#if canImport(CryptoKit)
    import CryptoKit

    struct Sha256 {
        private var hash = SHA256()

        mutating func update(_ data: Data) { hash.update(data: data) }

        /// The hash of everything so far. Ends its use.
        mutating func hex() -> String { hash.finalize().map { String(format: "%02x", $0) }.joined() }
    }
#else
    /// SHA-256 (FIPS 180-4) where there is no CryptoKit, as on Linux.
    struct Sha256 {
        private var state: [UInt32] = [
            0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19,
        ]
        private var words = [UInt32](repeating: 0, count: 64)
        private var rest = Data()
        private var length: UInt64 = 0

        mutating func update(_ data: Data) {
            length += UInt64(data.count)
            rest.append(data)
            let whole = rest.count - rest.count % 64
            guard whole > 0 else { return }
            rest.withUnsafeBytes { bytes in
                for at in stride(from: 0, to: whole, by: 64) { block(bytes, at) }
            }
            rest = Data(rest.suffix(rest.count - whole))
        }

        /// The hash of everything so far. Ends its use.
        mutating func hex() -> String {
            let bits = length * 8
            var end = Data([0x80])
            end.append(Data(count: (119 - rest.count) % 64))
            for shift in stride(from: 56, through: 0, by: -8) { end.append(UInt8(truncatingIfNeeded: bits >> UInt64(shift))) }
            update(end)
            return state.map { word in
                let digits = String(word, radix: 16)
                return String(repeating: "0", count: 8 - digits.count) + digits
            }.joined()
        }

        private mutating func block(_ bytes: UnsafeRawBufferPointer, _ at: Int) {
            func turn(_ x: UInt32, _ n: UInt32) -> UInt32 { x >> n | x << (32 - n) }
            for i in 0..<16 {
                words[i] = UInt32(bigEndian: bytes.loadUnaligned(fromByteOffset: at + 4 * i, as: UInt32.self))
            }
            for i in 16..<64 {
                let a = words[i - 15], b = words[i - 2]
                let s0 = turn(a, 7) ^ turn(a, 18) ^ a >> 3
                let s1 = turn(b, 17) ^ turn(b, 19) ^ b >> 10
                words[i] = words[i - 16] &+ s0 &+ words[i - 7] &+ s1
            }
            var (a, b, c, d) = (state[0], state[1], state[2], state[3])
            var (e, f, g, h) = (state[4], state[5], state[6], state[7])
            for i in 0..<64 {
                let s1 = turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)
                let t1 = h &+ s1 &+ (e & f ^ ~e & g) &+ Self.constants[i] &+ words[i]
                let s0 = turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)
                let t2 = s0 &+ (a & b ^ a & c ^ b & c)
                (h, g, f, e, d, c, b, a) = (g, f, e, d &+ t1, c, b, a, t1 &+ t2)
            }
            for (i, x) in [a, b, c, d, e, f, g, h].enumerated() { state[i] &+= x }
        }

        /// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
        private static let constants: [UInt32] = {
            var found: [UInt32] = []
            var n: UInt64 = 2
            while found.count < 64 {
                if (2..<n).allSatisfy({ n % $0 != 0 }) {
                    // The largest r with r³ <= n * 2^96, found bit by bit; its lowest 32 bits are the fraction.
                    var r: UInt64 = 0
                    for bit in (0..<36).reversed() where cubeIsAtMost(r | 1 << UInt64(bit), n) { r |= 1 << UInt64(bit) }
                    found.append(UInt32(truncatingIfNeeded: r))
                }
                n += 1
            }
            return found
        }()

        /// Whether r³ <= n * 2^96, for r below 2^36 and n below 2^10.
        private static func cubeIsAtMost(_ r: UInt64, _ n: UInt64) -> Bool {
            let square = r.multipliedFullWidth(by: r)
            let low = square.low.multipliedFullWidth(by: r)
            // The cube is high * 2^64 + low.low, and high has at most 44 bits.
            let high = square.high * r + low.high
            let limit = n << 32
            return high < limit || (high == limit && low.low == 0)
        }
    }
#endif
